# Sourced by the shell of a page's command (BASH_ENV): each compiler notes how it ended.
_proof_compile() {
  command "$@"
  local status=$?
  {
    printf '%s\x1f' "$status" "$PWD" "$@"
    printf '\x1e'
  } >>"$PROOF_COMPILES"
  return "$status"
}
for _proof_name in g++ c++ gcc cc clang++ clang nvcc hipcc g++-{12..16} clang{,++}-{19..22}; do
  eval "$_proof_name() { _proof_compile $_proof_name \"\$@\"; }"
done
unset _proof_name
