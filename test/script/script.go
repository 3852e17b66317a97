// Package script tests install.sh: in every shell and with every awk that it must support, against a mirror on
// loopback, with a program instead of coracle that records how it was called. Package test/install tests coracle's
// part.
package script
