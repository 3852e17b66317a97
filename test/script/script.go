// Package script tests install.sh: in every shell and awk that it must work with, against a mirror on the loopback, with
// a program in the place of coracle that records how it was called. What coracle does then is tested in test/install.
package script
