# Stop where the kernel of a debug build begins, and step through its loop.
set trace-commands on
set print thread-events off
# PyTorch's own libraries are large: read the symbols of ours alone.
set auto-solib-add off
catch load square_debug
run
sharedlibrary square_debug
break square.h:square_values
continue
backtrace 2
print *input@count
watch output[1]
continue
print i
delete
# In the caller, `output` is the tensor.
set $result = output
finish
print *$result@3
