// The search: pages and places as you type, also of a site that is opened as a file.
// Its data and MiniSearch, which ranks them, are loaded when a field gets the focus.
const siteSearch = (() => {
  const STOP = new Set(
    ("a an and any are as at be been but by can did do does for from had has have how i if in " +
      "into is it its may me my no not of on or our should so some such than that the their " +
      "them then there these they this to use was we were what when where which who why will " +
      "with would you your").split(" "),
  );

  // What differs from reader to reader: addresses of pages, files and memory.
  const strip = (query) =>
    query
      .replace(/\w+:\/\/\S+|\b0x[0-9a-f]+/gi, " ")
      .replace(/(^|[\s"'`(=])(~|[a-z]:)?[/\\][^\s"'`:;,)]*/gi, "$1 ");

  // `register_autograd` is found by its parts too, `in-place` also as `inplace`.
  const words = (text) =>
    (text.toLowerCase().replaceAll("c++", "cpp").match(/[\p{L}\p{N}_]+(-[\p{L}\p{N}_]+)*/gu) ?? [])
      .flatMap((word) => {
        if (!/[-_]/.test(word)) return word;
        const parts = word.split(/[-_]+/).filter(Boolean);
        return parts.length > 1 ? [word.replaceAll("-", ""), ...parts] : parts;
      });

  // What people write for what the pages call by another name.
  const ALIAS = new Map([
    ["op", "operator"],
    ["ops", "operator"],
    ["float32", "fp32"],
    ["float16", "fp16"],
    ["bfloat16", "bf16"],
  ]);

  const stem = (word) =>
    word.length > 1 && !STOP.has(word) && /\D/.test(word)
      ? (ALIAS.get(word) ?? word).replace(/(?<=..[^s])s$/, "").replace(/(?<=...)(ing|ed|e)$/, "")
      : null;

  const build = async ({ pages, places, synonyms }) => {
    const index = new MiniSearch({
      fields: ["title", "heading", "text", "synonym"],
      storeFields: ["page", "anchor", "heading", "text", "message", "size"],
      tokenize: words,
      processTerm: stem,
    });
    // In pieces, so that the field takes letters meanwhile.
    await index.addAllAsync([
      ...places.map(([page, anchor, heading, text], id) => {
        const [address, title] = pages[page];
        const message = anchor.startsWith("error-");
        return { id, page, anchor, heading, text, title, message };
      }),
      ...synonyms.map(([page, synonym], i) => {
        const size = new Set(words(synonym).map(stem).filter(Boolean)).size;
        return { id: -1 - i, page, anchor: "", synonym, size };
      }),
    ]);
    // One result a page: its best place, or its top if only a synonym has all the words.
    return (query) => {
      const count = new Set(words(strip(query)).map(stem).filter(Boolean)).size;
      const pasted = count > 6 || /error:/i.test(query);
      const options = {
        boost: { heading: 2, title: 1.5, synonym: 4 },
        boostDocument: (id, term, { message }) => (message ? (pasted ? 3 : 0.5) : 1),
        prefix: (term) => !pasted && term.length > 2,
        fuzzy: (term) => !pasted && term.length > 5 && 0.2,
        weights: { prefix: 0.4, fuzzy: 0.2 },
      };
      const best = new Map();
      for (const hit of index.search(strip(query), options)) {
        const found = best.get(hit.page) ?? { score: 0 };
        // A synonym is for those who type all of it; the less they type besides, the better.
        if (hit.size && (pasted || hit.terms.length < hit.size)) continue;
        const share = hit.size ? (2 * hit.queryTerms.length) / count : 1;
        found[hit.size ? "synonym" : "place"] ??= hit;
        found.score = Math.max(found.score, hit.score * share);
        best.set(hit.page, found);
      }
      return [...best.values()]
        .sort((a, b) => b.score - a.score)
        .map(({ place, synonym }) =>
          place && (!synonym || place.queryTerms.length === count) ? place : synonym,
        );
    };
  };
  return { build, strip, words, stem };
})();

(() => {
  const root = new URL("../", document.currentScript.src).href;
  const dialog = document.getElementById("pst-search-dialog");
  const script = (path) =>
    new Promise((done, fail) => {
      const element = Object.assign(document.createElement("script"), { src: root + path });
      Object.assign(element, { onload: done, onerror: fail });
      document.head.append(element);
    });
  let loaded;
  const load = () =>
    (loaded ??= Promise.all([
      script("_static/vendor/minisearch/minisearch.min.js"),
      script("search_data.js"),
    ]).then(() => siteSearch.build(SEARCH_DATA)));

  const element = (tag, className, ...content) => {
    const made = Object.assign(document.createElement(tag), { className });
    made.append(...content);
    return made;
  };

  // The text around the first word that was found, with all of them marked.
  const marked = (text, terms) => {
    const found = `(?<![\\p{L}\\p{N}])(?:${terms.join("|")})[\\p{L}\\p{N}]*`;
    const start = text.lastIndexOf(" ", text.search(new RegExp(found, "iu")) - 60) + 1;
    const part = text.slice(start).match(/^.{0,200}(?!\S)/s)?.[0] ?? text.slice(start, start + 200);
    const pieces = part.split(new RegExp(`(${found})`, "giu"));
    return pieces.map((piece, i) => (i % 2 ? element("mark", "", piece) : piece));
  };

  const item = ({ page, anchor, heading, text, terms }, query) => {
    const [address, title, about] = SEARCH_DATA.pages[page];
    const link = element("a", "", element("strong", "", title));
    if (heading && heading !== title) link.append(" › ", ...marked(heading, terms));
    link.append(element("p", "", ...marked(text || about, terms)));
    link.href = root + address + (heading !== title && anchor ? `#${anchor}` : "");
    // Sphinx marks these words on the page that opens. Those of a long message are many.
    const typed = siteSearch.words(query).filter(siteSearch.stem);
    link.onclick = () =>
      typed.length > 6 || localStorage.setItem("sphinx_highlight_terms", typed.join(" "));
    return element("li", "", link);
  };

  for (const field of document.querySelectorAll("form.bd-search input")) {
    const inDialog = dialog?.contains(field);
    const status = element("p", "search-status");
    const list = element("ol", "search-hits");
    status.role = "status";
    field.form.after(status, list);
    const show = async () => {
      const find = await load();
      const query = field.value;
      if (query === list.dataset.query) return;
      list.dataset.query = query;
      const hits = find(query).slice(0, inDialog ? 10 : 50);
      const none = "No page has these words. Try fewer, or other ones.";
      status.textContent = query.trim() && (hits.length ? `The ${hits.length} best pages` : none);
      list.replaceChildren(...hits.map((hit) => item(hit, query)));
    };
    field.addEventListener("focus", load);
    field.addEventListener("input", show);
    if (!inDialog) {
      field.value = new URLSearchParams(location.search).get("q") ?? "";
      field.focus();
      if (field.value) show();
    }
  }
  if (document.querySelector(".error-filter")) script("_static/error_table.js");

  // Up and down move between the field and the results.
  document.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const area = step && document.activeElement?.closest("#pst-search-dialog, .bd-search-container");
    if (!area) return;
    const stops = [...area.querySelectorAll("input, .search-hits a")];
    stops[stops.indexOf(document.activeElement) + step]?.focus();
    event.preventDefault();
  });
})();
