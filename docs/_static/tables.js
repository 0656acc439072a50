// On a phone, opbook.css stacks the cells of a row in a table of few columns: each cell
// then says its column's head. Wider tables scroll.
for (const table of document.querySelectorAll("article table.table:not(:has([colspan], [rowspan]))")) {
  const heads = [...(table.tHead?.rows[0].cells ?? [])].map((head) => head.textContent.trim());
  if (heads.length < 2 || heads.length > 5) continue;
  table.classList.add("stacks");
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, column) => (cell.dataset.head = heads[column]));
  }
}
// The names in a table may break behind _ . , : and /, but only if it would not fit.
for (const table of document.querySelectorAll("article table.table")) {
  const place = table.parentElement;
  if (!table.matches(".stacks") || matchMedia("(min-width: 601px)").matches) {
    if (place.scrollWidth <= place.clientWidth) continue;
    table.classList.add("breaks");
  }
  for (const name of table.querySelectorAll("code .pre")) {
    name.innerHTML = name.innerHTML.replace(/[a-z0-9][_.,:/]+(?=[a-z0-9])/gi, "$&<wbr>");
  }
}
// A plot scrolls on a phone, as a wide table does.
for (const plot of document.querySelectorAll("article :is(section, figure, .cell_output) > img")) {
  const place = document.createElement("div");
  place.className = "pst-scrollable-table-container plot";
  plot.replaceWith(place);
  place.append(plot);
}
