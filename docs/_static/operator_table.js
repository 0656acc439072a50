// The filter above a table of operators. Without it, the table shows every row.
for (const form of document.querySelectorAll(".operator-filter")) {
  const table = form.nextElementSibling;
  const rows = [...table.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const words = form.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const [kind, group] = [form.kind.value, form.group.value];
    let shown = 0;
    rows.forEach((row, i) => {
      const match =
        (!kind || row.cells[1].textContent.trim() === kind) &&
        (!group || row.dataset.g === group) &&
        words.every((word) => texts[i].includes(word));
      row.hidden = !match;
      shown += match;
    });
    form.querySelector("output").value = `${shown} of ${rows.length}`;
  };
  form.addEventListener("input", filter);
  form.hidden = false;
  filter();
}
