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

  // A message without colours, modules of classes, and places in files, where macOS and the
  // linker say what Linux's loader says.
  const UNLINKED = new RegExp(
    "(undefined reference to \\W?)" +
      "(?:(?:c10|at|torch)::(?!cuda)|_ZNK?(?:3c10|2at|5torch)(?!4cuda)|aoti_torch_)[^'’\"\n]*",
    "g",
  );
  // What another version says, or a name that differs from reader to reader, in the words of a row.
  const SAME = [
    [/You need (C\+\+\d+) to compile PyTorch/g, "$1 or later compatible compiler is required to use PyTorch"],
    [/initial value for \W?(\w+)\W? is of type .* but the then block redefines it as .*/g, "Mismatched type for $1 between then block and else block"],
    [/CUDA driver version is insufficient for CUDA runtime version/g, "The NVIDIA driver on your system is too old"],
    [
      /You tried to register a kernel with an unsupported (?:integral )?\w+ type(?:: float)?\. Please use (int64_t|double) instead.*/g,
      "INVALID TYPE: float is not supported as an argument type, use $1 instead",
    ],
    [
      /cannot convert \W?const at::DeprecatedTypeProperties\W? to \W?c10::ScalarType\W?/g,
      'no suitable conversion function from "const at::DeprecatedTypeProperties" to "c10::ScalarType" exists',
    ],
    [/identifier "THC\w+" is undefined|\W?THC\w+\W? was not declared in this scope/g, "fatal error: THC/THC.h: No such file or directory"],
    [/AST node type: Continue/g, "AST node type: Break"],
    [/(undefined symbol: )_Z\d+THP\w+/g, "$1THPVariableClass"],
    [/(undefined symbol: )(?:aoti_)?torch_(?!cpu_)\w+/g, "$1torch_of_another_version"],
    [/\bu?int\d+_t(?=\W does not name a type)/g, "uint32_t"],
    [/(__ function)\("[^"]*(?:"\)|$)/gm, "$1"],
    [/\(scroll up for stack trace\)|Hint: enable anomaly detection.*/g, ""],
    [/from the '(?!(?:CPU|CUDA|Meta)')\w+' backend/g, "from the 'SparseCPU' backend"],
    [/(fatal error: )'([^']+)' file not found/g, "$1$2: No such file or directory"],
    [/(fatal error)\W+C1083: Cannot open include file: '([^']+)'/g, "$1: $2"],
    [
      /cannot import name '_C' from '|ModuleNotFoundError: No module named '(?=\w+\._C')(?!torch\.)/g,
      "ImportError: cannot import name '_C' from partially initialized module (most likely due to a circular import) '",
    ],
  ];
  const PLACE = /[^\s'"(]+(?:\(\d+\)|:\d+(?::\d+)?):|\S+(?=: undefined symbol)/g;
  const plain = (message) =>
    SAME.reduce((text, [pattern, words]) => text.replace(pattern, words), message)
      .replace(/\x1b\[[\d;]*m/g, "")
      .replace(/\S+ \(with implementation in [^)]*\)|opcheck\(op, \.\.\.\): \w+ failed with/g, "")
      .replace(/(?:\w+\.)+(?=[A-Z]\w*(?:Error|Exception|Warning|Unsupported)\b)/g, "")
      .replace(/Symbol not found: \(?_?(?=_Z)/g, "undefined symbol: ")
      .replace(/\bCXXABI_(?=\d)/g, "GLIBCXX_") // both are versions of libstdc++
      .replace(/(?:what\(\): +)?\w+(?:\(\))?, \S+:\d+, /g, " ") // STD_TORCH_CHECK's place
      .replace(/(?<=" )not implemented for (?=')/g, "not_implemented for_dtype ")
      .replace(/Library not loaded: (?:\S*\/)?(\S+)/g, "$1: cannot open shared object file")
      .replace(UNLINKED, "$1_Z5torch")
      .replace(PLACE, " ");

  // A message in pieces that can be compared, with a sign for each number. A mangled name
  // stays whole, since what counts is whose function it is.
  const OWNERS = {
    _Z_torch: /^_Z(T.|GV)?(N[KRO]*)?(3c10|2at|5torch|6caffe2)/,
    _Z_library:
      /^_Z(T.|GV)?(N[KRO]*)?(S|2cv|3fmt|4absl|4llvm|4mlir|5boost|6google|8nanobind|8nvinfer1|8pybind11|10tensorflow)/,
    _Z_own: /^_Z/,
  };
  const piece = (word) => {
    const owner = Object.keys(OWNERS).find((name) => OWNERS[name].test(word));
    if (owner) return owner;
    if (/^_[A-Z][^_]*__./.test(word)) return "_Class__name";
    if (word.length < 2 || !/\p{L}|\./u.test(word) || STOP.has(word.toLowerCase())) return null;
    return word.toLowerCase().replace(/\d+/g, "#").replace(/(?<=...[^s])s$/, "");
  };
  const pieces = (message) => {
    const text = strip(plain(message)).replaceAll("C++", "cpp");
    const found = text.match(/[\p{L}\p{N}_]+(?:\.\d+)*/gu) ?? [];
    return [...new Set(found.map(piece).filter(Boolean))];
  };
  const all = (pattern, text) => [...text.matchAll(pattern)].map((found) => found[1]).join(" ");
  // Names of somebody's own.
  const NAME = /(?:['"‘`](?=[\w:.]+['"’`])|\b(?=\w+(?:::|\.)\w))([\w:.]+)/g;
  // The one file, module or name that a message is about: another one has another cause.
  const SUBJECTS = [
    /No module named \W?(?:\w+\.)*(\w+)/gi,
    /cannot import name (\S+)/gi,
    /undefined (?:symbol:|reference to) (\S+)/gi,
    /(_OpNamespace)' '\w+' object has no attribute/g,
    /(?:module \S+|(?<!_OpNamespace' '\w+') object) has no attribute (\S+)/gi,
    /\bname (\S+) is not defined/gi,
    /'(\w+)' object is not callable/gi,
    /(\S+)['’"] (?:was not declared|is undefined|does not name a type)/gi,
    /\w+::(\w+)[\w:]*['’"] has no member/gi,
    /satisfies the requirement ([\w-]+)/gi,
    /(?:specified|out of resource:|too much|too many|depth exceeded in|depth exceeded while) (\w+)/gi,
    /(?:unknown type name|builtin operator) (\S+)/gi,
    /\b(warpSize)\b/g,
    /(more than one) operator/gi,
    /missing (?:\d+ )?required (?:positional )?arguments?:? '(\w+)/gi,
    /active drivers \(\[(<class)/gi,
    /'(\w+)'\W+ambiguous symbol/gi,
    /(?:namespace|class|struct) \W?(\w+)\W has no member/gi,
    /is not a member of \W(\w+)/gi,
    /no instance of (?:overloaded function|function template) \W([\w:]+)/gi,
    /\bversion \W?([a-z]+)_[\d.]+\W? not found/gi,
    /calling a (\w+)/g,
    /values for attribute '(\w+)/g,
    /from the '(\w+)' backend/g,
    /invalid target ID '(\w+)/g,
    /invalid device (\w+)/g,
    /unsupported (CUDA) gpu architecture/gi,
    /cannot find -(l\w+)/g,
    /configuration file provided by \W?(\w+)/g,
    /died due to signal \d+ \((\w+)/g,
    /AST node type: (\w+)/g,
  ];
  // A library or a header, of which the folders count.
  const FILE = /(?<!\S)(?!file:)(\S+): (?:No such file|cannot open shared)/gi;
  const subjects = (text) => {
    const short = (name) =>
      pieces(
        name
          .replace(/\bl(?:ib)?(c10|torch)(_cuda|_hip)?(?:_\w*)?(?!\w)/g, "libtorch$2")
          .replace(/\.(so|dylib|h|hpp|cuh)\b[.\d]*/g, ""),
      );
    const named = SUBJECTS.map((pattern) => all(pattern, plain(text))).join(" ");
    const files = all(FILE, plain(text))
      .replace(/(?<=\w)\/(?!\S*\.so)[^\s/]*(?!\S)/g, "")
      .replace(/\S*\/(?=[^\s/]*\.(?:so|dylib)\b)/g, "");
    return { named: short(named), files: short(files) };
  };
  const namesIn = (text) => pieces(`${all(NAME, text)} ${all(FILE, plain(text))}`);
  // What Python and PyTorch say of any program: the rest of the message has to fit as well.
  const GENERAL = new RegExp(
    "index out of range|values to unpack|has no len|must match the size of|cannot convert None|" +
      "positional arguments? but|incompatible function arguments",
    "i",
  );
  const KIND = /^(\w*error|\w*exception|\w*warning|fatal|cuda|torch|python)$/;
  const PLATFORMS = {
    "On ROCm": /\b(rocm|hip\w*|amd\w*|gfx\w*)\b/i,
    "On NVIDIA": /\b(nvidia|cuda\w*|nvcc|ptxas|sm_\w+)\b/i,
  };
  // Where another line of a log begins, perhaps one that was pasted into a field of one line.
  const EXCEPTION = /\b[A-Z]\w*(?:Error|Exception|Warning|Unsupported): /;
  const LINES = new RegExp(`\\n| {3,}|(?=${EXCEPTION.source}|\\berror *: )`, "g");
  const OTHERS = /tensorflow|\bjax|paddle|hidden symbol/i;
  const isMessage = (text) =>
    pieces(text).length > 6 ||
    /^\S+: \S+ |(error|exception|warning|fatal)\b( \w+)?\s*[:([]/i.test(text) ||
    /undefined (symbol|reference)\W+\w/i.test(text) ||
    /core dumped|double free|corrupted |^\w+\(\): /i.test(text); // of the C library

  // Which rows of the table of errors explain a message, best first; perhaps none.
  const explain = (rows) => {
    const count = new Map();
    for (const { message } of rows) {
      pieces(message).forEach((word) => count.set(word, (count.get(word) ?? 0) + 1));
    }
    // Many paste the first sentence of a message alone.
    const texts = rows.flatMap((row) => {
      const [sentence] = row.message.match(/^.{80,}?\. (?=[A-Z])/) ?? [];
      return [row.message, sentence].filter(Boolean).map((message) => ({ row, message }));
    });
    const known = texts.map(({ row: { cause }, message }) => {
      const words = pieces(message);
      const platform = Object.keys(PLATFORMS).find((start) => cause.startsWith(start));
      const { named, files } = subjects(message);
      const about = [...named, ...files];
      return { words, platform, about, names: namesIn(message), cause: pieces(cause) };
    });
    // What is in few rows weighs more, and a name that only one side has weighs little.
    const weigh = (word, isOwn) => {
      if (KIND.test(word)) return 0.3;
      const weight = Math.log(1 + rows.length / (count.get(word) ?? 0.5));
      return isOwn ? weight / 4 : weight;
    };
    const sum = (words, isOwn = () => false) =>
      words.reduce((total, word) => total + weigh(word, isOwn(word)), 0);
    const find = (message) => {
      const words = pieces(message);
      const names = namesIn(message);
      const { named, files } = subjects(message);
      const judge = ({ row }, number) => {
        const its = known[number];
        // Of all that the message says, what the row explains; and the reverse.
        const common = its.words.filter((word) => words.includes(word));
        const isTheirs = (word) =>
          !common.includes(word) && (names.includes(word) || /[_#]/.test(word));
        const isItsOwn = (word) =>
          !common.includes(word) && (its.names.includes(word) || its.about.includes(word));
        // A long message has the row's words somewhere, and near each other.
        const places = common.map((word) => words.indexOf(word));
        const around = words.slice(Math.min(...places), Math.max(...places) + 1);
        const weight = sum(common);
        const share = weight / (sum(words, isTheirs) || 1);
        const used = weight / (sum(its.words, isItsOwn) || 1);
        const fixed = weight / (sum(its.words.filter((word) => !isItsOwn(word))) || 1);
        const near = weight / (sum(around, isTheirs) || 1);
        const inCause = (word) => its.cause.includes(word) && !KIND.test(word);
        const isSame = [...named, ...files].some((word) => its.about.includes(word));
        const isAbout = its.about.length
          ? isSame || files.some(inCause)
          : !named.length && !files.length;
        const isHere = !its.platform || PLATFORMS[its.platform].test(message);
        const rest = words.filter((word) => !its.words.includes(word));
        const isTelling = (word) => inCause(word) && weigh(word) > 2.5;
        const fits = !GENERAL.test(row.message) || rest.some(isTelling);
        const explained =
          (share >= 0.5 && used >= 0.6 && weight >= 6) ||
          (share >= 0.6 && used >= 0.75 && weight >= 4.5) ||
          (near >= 0.6 && used >= 0.85 && weight >= (isSame ? 6 : 8));
        const answers = explained && isAbout && isHere && fits;
        return { row, answers, score: weight * fixed };
      };
      const isFirst = ({ row }, i, all) => all.findIndex((other) => other.row === row) === i;
      const judged = texts.map(judge).sort((a, b) => b.score - a.score);
      const best = judged.filter(({ answers }) => answers).filter(isFirst);
      const found = judged.filter(isFirst);
      return {
        answers: best.filter(({ score }) => score > 0.85 * best[0].score).map(({ row }) => row),
        nearest: found.slice(0, 3).map(({ row }) => row),
      };
    };
    // All of a message, or its last exception, or a compiler's first error: what pip and
    // setuptools say of that error is none.
    return (message) => {
      const whole = find(message);
      if (OTHERS.test(strip(message))) return { ...whole, answers: [] };
      const lines = plain(message).split(LINES);
      const parts = [
        lines.filter((text) => EXCEPTION.test(text)).pop(),
        lines.find((text) => /^error *: (?!subprocess-exited|command )/.test(text)),
      ].filter(Boolean);
      const found = [whole, ...parts.map(find)].find(({ answers }) => answers.length);
      return { ...whole, answers: found?.answers ?? [] };
    };
  };

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
    // The last cell of a row names a page.
    const withoutPage = (text) => text.slice(0, text.lastIndexOf(". ") + 1) || text;
    const rows = places
      .map(([page, anchor, heading, text]) => ({ page, anchor, heading, text, terms: [] }))
      .filter(({ anchor }) => anchor.startsWith("error-"))
      .map((row) => ({ ...row, message: row.heading, cause: withoutPage(row.text) }));
    const answer = explain(rows);
    // One result a page: its best place, or its top if only a synonym has all the words.
    const findPages = (query) => {
      const count = new Set(words(strip(query)).map(stem).filter(Boolean)).size;
      const pasted = isMessage(query);
      const options = {
        boost: { heading: 2, title: 1.5, synonym: 4 },
        boostDocument: (id, term, { message }) => (message ? 0.5 : 1),
        filter: ({ message }) => !(message && pasted),
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
    // For a message, the rows that explain it, and pages that are perhaps about it.
    return (query) => {
      const { answers } = answer(query);
      const isKnown = answers.length || isMessage(query);
      return { answers: isKnown ? answers.slice(0, 5) : null, pages: findPages(query) };
    };
  };
  return { build, explain, isMessage, strip, words, stem };
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
    if (!terms.length) return [text];
    const found = `(?<![\\p{L}\\p{N}])(?:${terms.join("|")})[\\p{L}\\p{N}]*`;
    const start = text.lastIndexOf(" ", text.search(new RegExp(found, "iu")) - 60) + 1;
    const part = text.slice(start).match(/^.{0,200}(?!\S)/s)?.[0] ?? text.slice(start, start + 200);
    const pieces = part.split(new RegExp(`(${found})`, "giu"));
    return pieces.map((piece, i) => (i % 2 ? element("mark", "", piece) : piece));
  };

  const item = ({ page, anchor, heading, text, terms }, query, kind) => {
    const [address, title, about] = SEARCH_DATA.pages[page];
    const link = element("a", "", element("strong", "", title));
    if (heading && heading !== title) link.append(" › ", ...marked(heading, terms));
    link.append(element("p", "", ...marked(text || about, terms)));
    link.href = root + address + (heading !== title && anchor ? `#${anchor}` : "");
    // Sphinx marks these words on the page that opens. Those of a long message are many.
    const typed = siteSearch.words(query).filter(siteSearch.stem);
    link.onclick = () =>
      typed.length > 6 || localStorage.setItem("sphinx_highlight_terms", typed.join(" "));
    return element("li", kind, link);
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
      const { answers, pages } = find(query);
      const hits = pages.slice(0, inDialog ? 10 : 50);
      const none = "No page has these words. Try fewer, or other ones.";
      const best = hits.length ? `The ${hits.length} best pages` : none;
      const known = answers?.length
        ? "In the table of errors, and perhaps in these pages:"
        : "Not in the table of errors. Perhaps one of these pages helps:";
      status.textContent = query.trim() && (answers ? known : best);
      list.replaceChildren(
        ...(answers ?? []).map((row) => item(row, query, "search-answer")),
        ...hits.map((hit) => item(hit, query, answers ? "search-perhaps" : "")),
      );
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
