// The second copy button of a block that is offered as a complete program: the text lies
// below the block, and sphinx-copybutton does the rest.
for (const program of document.querySelectorAll("pre.program")) {
  const button = document.createElement("button");
  button.className = "copybtn program o-tooltip--left";
  button.setAttribute("aria-label", "Copy as a complete program");
  button.dataset.clipboardTarget = `#${program.id}`;
  let block = program.previousElementSibling;
  while (!block.querySelector(".highlight")) block = block.previousElementSibling;
  block.querySelector(".highlight").append(button);
}
