// The filter above the table of errors. Without it, the table shows every row.
for (const form of document.querySelectorAll(".error-filter")) {
  const { strip, words, stem } = siteSearch;
  const stems = (text) => [...new Set(words(text).map(stem).filter(Boolean))];
  const groups = [...document.querySelectorAll(".error-table tbody")];
  const rows = groups.flatMap((group) => [...group.rows].slice(1));
  const texts = rows.map((row) => stems(row.textContent));
  const filter = () => {
    const scores = rows.map(() => 0);
    for (const term of stems(strip(form.text.value))) {
      const found = texts.map((text) => text.some((word) => word.startsWith(term)));
      const count = found.filter(Boolean).length;
      // A word of few rows says more; the row with the most of them comes with its like.
      found.forEach((yes, i) => yes && (scores[i] += Math.log(1 + rows.length / count)));
    }
    const best = Math.max(...scores);
    const typed = form.text.value.trim();
    rows.forEach((row, i) => (row.hidden = typed && (!scores[i] || scores[i] < 0.6 * best)));
    groups.forEach((group) => (group.hidden = [...group.rows].slice(1).every((row) => row.hidden)));
    form.querySelector("output").value = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  form.addEventListener("input", filter);
  form.hidden = false;
  filter();
}
