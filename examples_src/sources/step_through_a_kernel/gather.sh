# Build gather.cu for the debugger, and run cuda-gdb over gather.gdb on the GPU at hand.
# Addresses and folders, which differ from one machine to the next, are cut out.
PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
cd "$(dirname "$0")" || exit
for tool in nvcc cuda-gdb; do
  command -v "$tool" > /dev/null || { echo "$tool not found in $PATH"; exit 1; }
done
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
nvcc -G -g -arch=native gather.cu -o "$folder/gather" || exit
said="$(cuda-gdb -q -batch -x gather.gdb "$folder/gather" 2>&1)"
status=$?
# The page says what the session finds: the thread, its index, and the exception.
for found in "x = 32," "= 268435456" "CUDA_EXCEPTION_"; do
  grep -q -- "$found" <<< "$said" || status="no '$found'"
done
if [ "$status" != 0 ]; then
  echo "$said"
  echo "cuda-gdb: $status"
  exit 1
fi
sed -n '/^+break gather$/,$p' <<< "$said" \
  | sed -E '/^\[(New|Thread|Detaching|Inferior)/d; /^(warning|Using host|Download)/d' \
  | sed -E 's/0x[0-9a-f]{6,}/0x.../g; s#/[^ ]*/##g; s/ +$//; /^$/d'
