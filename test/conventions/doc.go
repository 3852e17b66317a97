// Package conventions holds the tests of what all code here has in common: who may import whom, what is documented,
// how long things may be, and what is not done at all. They read the source, so they need no build of it.
package conventions
