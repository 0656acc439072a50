# Sourced by the shell of a page's command (BASH_ENV): each compiler notes how it ended.
_proof_compile() {
  local status=0 note
  command "$@" || status=$? # so that a script with `set -e` goes on to the note
  printf -v note '%s\x1f' "$status" "$PWD" "$@"
  # One write: compilers that run side by side must not mix their notes.
  printf '%s\x1e' "$note" >>"${PROOF_COMPILES:-/dev/null}"
  return "$status"
}
for _proof_name in g++ c++ gcc cc clang++ clang nvcc hipcc g++-{12..16} clang{,++}-{19..22}; do
  eval "$_proof_name() { _proof_compile $_proof_name \"\$@\"; }"
done
unset _proof_name
