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
