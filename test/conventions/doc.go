// Package conventions holds the tests of rules for all code: allowed imports, documentation, lengths, and things that
// no code may do. They read the source and do not build it.
package conventions
