library.impl("triple", triple, "CPU")
