// Functions without a body, whose symbols are in the runtime, need a file of assembly in the package.
