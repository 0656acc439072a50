// The filter above the table of errors. Without it, the table shows every row.
for (const form of document.querySelectorAll(".error-filter")) {
  const { explain, isMessage, strip, words, stem } = siteSearch;
  const stems = (text) => [...new Set(words(text).map(stem).filter(Boolean))];
  const groups = [...document.querySelectorAll(".error-table tbody")];
  const rows = groups.flatMap((group) => [...group.rows].slice(1));
  const texts = rows.map((row) => stems(row.textContent));
  const answer = explain(
    rows.map((row) => {
      const [message, cause] = [...row.cells].map((cell) => cell.textContent);
      return { row, message: message.replace(/#$/, ""), cause };
    }),
  );
  // Some words of a message: the rows with the most of them, a word of few rows says more.
  const withWords = (text) => {
    const scores = rows.map(() => 0);
    for (const term of stems(strip(text))) {
      const found = texts.map((text) => text.some((word) => word.startsWith(term)));
      const count = found.filter(Boolean).length;
      found.forEach((yes, i) => yes && (scores[i] += Math.log(1 + rows.length / count)));
    }
    const best = Math.max(...scores);
    return rows.filter((row, i) => scores[i] && scores[i] >= 0.6 * best);
  };
  const filter = () => {
    const text = form.text.value.trim();
    const { answers, nearest } = answer(text);
    const isAnswered = answers.length || isMessage(text);
    const found = isAnswered ? answers.map(({ row }) => row) : withWords(text);
    const shown = text ? found : rows;
    rows.forEach((row) => (row.hidden = !shown.includes(row)));
    groups.forEach((group) => (group.hidden = [...group.rows].slice(1).every((row) => row.hidden)));
    const output = form.querySelector("output");
    output.textContent = shown.length
      ? `${shown.length} of ${rows.length}`
      : "This message is not in the table. Perhaps one of these pages helps: ";
    if (shown.length) return;
    const links = nearest.map(({ row }) => row.cells[2].querySelector("a").cloneNode(true));
    const pages = new Map(links.map((link) => [link.textContent, link]));
    output.append(...[...pages.values()].flatMap((link, i) => (i ? [", ", link] : [link])));
  };
  form.addEventListener("input", filter);
  form.hidden = false;
  filter();
}
