# Step into a kernel of a debug build, and find the thread that reads past the end.
set trace-commands on
set breakpoint pending on
set print thread-events off
break gather
run
info cuda threads
print threadIdx
next
next
print i
delete
break gather.cu:9 if row >= 64
continue
print threadIdx
print row
delete
continue
