// Tables, long names and plots, where there is little room.

// On a phone, opbook.css stacks the cells of a row in a table of few columns: each cell
// then says its column's head. Wider tables scroll, and bars are compared.
for (const table of document.querySelectorAll("article table.table:not(:has([colspan], [rowspan]))")) {
  const heads = [...(table.tHead?.rows[0].cells ?? [])].map((head) => head.textContent.trim());
  if (heads.length < 2 || heads.length > 5 || table.matches(".bars")) continue;
  table.classList.add("stacks");
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, column) => (cell.dataset.head = heads[column]));
  }
}
// A name of more letters than fit a line may break behind _ . , : / = ( and [. A shorter one
// moves to the next line as a whole.
const joint = /(?<=[a-z0-9][_.,:/=([]+)(?<!\d[.,])(?=[a-z0-9])/i;
const breakNames = (place, fits) => {
  const walk = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walk.nextNode()) texts.push(walk.currentNode);
  for (const text of texts) {
    const words = text.data.split(/(\s+)/);
    if (words.every((word) => word.length <= fits)) continue;
    text.replaceWith(...words.map((word) => {
      const parts = word.length > fits ? word.split(joint) : [];
      if (parts.length < 2) return word;
      const name = document.createElement("span");
      name.className = "name";
      name.append(...parts.flatMap((part) => [part, document.createElement("wbr")]).slice(0, -1));
      return name;
    }));
  }
};
// Each line of a text is an element of its own, whose further lines are indented.
const hangLines = (output) => {
  const lines = [[]];
  for (const node of [...output.childNodes]) {
    if (node.nodeType !== Node.TEXT_NODE) { lines.at(-1).push(node); continue; }
    node.data.split("\n").forEach((text, number) => {
      if (number) lines.push([]);
      lines.at(-1).push(text);
    });
  }
  output.replaceChildren(...lines.map((parts, number) => {
    const line = document.createElement("span");
    line.className = "line";
    line.append(...parts, number < lines.length - 1 ? "\n" : "");
    return line;
  }));
};
const phone = matchMedia("(max-width: 600px)").matches;
// In a table that would not fit, or whose sentences would be squeezed, all names may break.
for (const table of document.querySelectorAll("article table.table")) {
  const place = table.parentElement;
  if (!table.matches(".stacks") || !phone) {
    const squeezed = ({ clientWidth: width, textContent: text }) =>
      width > 0 && width < 120 && text.length > 60;
    const fits = place.scrollWidth <= place.clientWidth;
    if (fits && ![...table.querySelectorAll("td")].some(squeezed)) continue;
    table.classList.add("breaks");
  }
  for (const name of table.querySelectorAll("code .pre")) breakNames(name, 0);
}
// An output whose line is a message of several sentences wraps, as an error does.
const outputs = "article :is(.run-output, .cell_output, .sphx-glr-script-out) pre";
for (const output of document.querySelectorAll(outputs)) {
  if (output.textContent.split("\n").some((line) => line.length > 240)) output.classList.add("wraps");
}
// Outside tables, a phone's line has about 40 letters of code, and 20 of a heading.
const wrap = "article :is(.run-error pre, .wraps .run-output pre, pre.wraps)";
for (const output of document.querySelectorAll(wrap)) breakNames(output, 30);
// A verdict that goes on in the next line stands out by its first words.
for (const output of document.querySelectorAll("article :is(.wraps .run-output pre, pre.wraps)")) hangLines(output);
for (const name of document.querySelectorAll(".error-table td")) breakNames(name, 24);
if (phone) {
  const names = "article :is(.code-block-caption, code.literal .pre)";
  for (const name of document.querySelectorAll(names)) breakNames(name, 30);
  for (const origin of document.querySelectorAll("p.proof")) breakNames(origin, 44);
  for (const head of document.querySelectorAll("article :is(h1, h2, h3)")) breakNames(head, 12);
}
// A plot scrolls on a phone, as a wide table does.
for (const plot of document.querySelectorAll("article :is(section, figure, .cell_output) > img")) {
  const place = document.createElement("div");
  place.className = "pst-scrollable-table-container plot";
  plot.replaceWith(place);
  place.append(plot);
}
// What scrolls has to be reached with a keyboard, too.
for (const formula of document.querySelectorAll("div.math")) {
  if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
}
