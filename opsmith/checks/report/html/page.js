"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const marks = {
    passed: "✓", failed: "✗", "cut short": "!", "not applicable": "–", "not run": "·",
  };
  // Groups differ in shape as well as in colour, in the order of the legend.
  const colours = ["#3b7dd8", "#d9822b", "#2f9e68", "#b0549e", "#c9a227", "#6f7d8c"];

  /** Create an element with attributes and children; strings become text nodes, not HTML. */
  function make(name, attributes = {}, ...children) {
    const svg = ["svg", "path", "line", "text", "circle", "rect", "g", "title"].includes(name);
    const made = svg
      ? document.createElementNS("http://www.w3.org/2000/svg", name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // --- numbers ---------------------------------------------------------------------------------

  const number = (error) => (error === "infinite" ? Infinity : error);
  function show(error) {
    const value = number(error);
    if (value === null || value === undefined) return "";
    if (value >= 1000) return ">999";
    if (value === 0) return "0";
    return value < 0.001 ? "<.001" : Number(value.toPrecision(value < 0.01 ? 1 : 2)).toString();
  }
  function worst(errors) {
    const known = errors.map(number).filter((error) => error !== null && error !== undefined);
    return known.length ? Math.max(...known) : null;
  }
  /** Return the samples of some rows as objects. */
  function samplesOf(rows) {
    return rows.flatMap((row) =>
      (row.samples || []).map(([cohort, dtype, elements, cases, error]) => ({
        cohort, dtype: dtype || "fixed", elements, cases, error: number(error),
      })));
  }
  function grouped(items, key) {
    const groups = new Map();
    for (const item of items) {
      if (!groups.has(key(item))) groups.set(key(item), []);
      groups.get(key(item)).push(item);
    }
    return groups;
  }

  // --- plots -----------------------------------------------------------------------------------

  const low = -4, high = 3;  // powers of ten of the tolerance
  const height = (error) =>
    150 - 130 * (Math.min(high, Math.max(low, Math.log10(error || 1e-9))) - low) / (high - low);

  function frame(caption) {
    const svg = make("svg", { viewBox: "0 0 400 180", role: "img", "aria-label": caption });
    for (let power = low; power <= high; power++) {
      const y = height(10 ** power);
      svg.append(make("line", { class: power ? "axis" : "limit", x1: 40, x2: 395, y1: y, y2: y }));
      const label = power === high ? "≥1000" : power === low ? "≤10⁻⁴" : power ? "" : "1";
      if (label) svg.append(make("text", { x: 35, y: y + 4, "text-anchor": "end" }, label));
    }
    return svg;
  }

  function plotSizes(samples, dtypes) {
    const caption = "Largest error, in units of its tolerance, against the number of elements";
    const svg = frame(caption);
    const most = Math.max(4, ...samples.map((one) => Math.log2(one.elements + 1)));
    const x = (elements) => 50 + 335 * (Math.log2(elements + 1) / most);
    for (let power = 0; power <= most; power += Math.max(1, Math.ceil(most / 8))) {
      const label = power < 10 ? String(2 ** power) : `2^${power}`;
      svg.append(make("text", { x: x(2 ** power - 1 || 0), y: 172, "text-anchor": "middle" },
        power ? label : "0"));
    }
    for (const one of samples) {
      svg.append(point(x(one.elements), height(one.error), dtypes.indexOf(one.dtype),
        `${one.cohort}, ${one.dtype}: ${one.cases} cases of up to ${one.elements} elements, ` +
        `error ${show(one.error)}`));
    }
    return make("figure", {}, svg, make("figcaption", {}, caption));
  }

  function point(x, y, series, words) {
    const colour = colours[series % colours.length];
    const shape = series % 3 === 0
      ? make("circle", { cx: x, cy: y, r: 3.5 })
      : make("path", { d: series % 3 === 1
          ? `M${x - 3.5} ${y - 3.5}h7v7h-7z`
          : `M${x} ${y - 4.5}l4.5 8h-9z` });
    shape.setAttribute("fill", colour);
    shape.setAttribute("fill-opacity", "0.75");
    shape.append(make("title", {}, words));
    return shape;
  }

  function plotDtypes(samples, dtypes) {
    const caption = "Largest error against dtype";
    const svg = frame(caption);
    const width = 345 / dtypes.length;
    dtypes.forEach((dtype, position) => {
      const error = worst(samples.filter((one) => one.dtype === dtype).map((one) => one.error));
      const x = 45 + width * position, y = height(error);
      const bar = make("rect", {
        x: x + width * 0.15, y, width: width * 0.7, height: Math.max(1, 150 - y),
        fill: colours[position % colours.length], "fill-opacity": "0.75",
      }, make("title", {}, `${dtype}: ${show(error)}`));
      svg.append(bar, point(x + 8, 165, position, dtype),
        make("text", { x: x + 16, y: 169 }, dtype.replace("float", "f").replace("complex", "c")),
        make("text", { x: x + width / 2, y: y - 4, "text-anchor": "middle" }, show(error)));
    });
    return make("figure", {}, svg, make("figcaption", {}, caption));
  }

  function plots(rows) {
    const samples = samplesOf(rows).filter((one) => one.error !== null && one.error !== undefined);
    if (!samples.length) return null;
    const dtypes = [...new Set(samples.map((one) => one.dtype))];
    return make("div", { class: "plots" }, plotSizes(samples, dtypes), plotDtypes(samples, dtypes));
  }

  // --- the panel -------------------------------------------------------------------------------

  function cohorts(row) {
    const samples = samplesOf([row]);
    if (!samples.length) return null;
    const head = make("tr", {}, make("th", {}, "cohort"), make("th", { class: "number" }, "cases"),
      make("th", { class: "number" }, "error"));
    const table = make("table", { class: "cohorts" }, head);
    for (const [cohort, some] of grouped(samples, (one) => one.cohort)) {
      const error = worst(some.map((one) => one.error));
      const cases = some.reduce((sum, one) => sum + one.cases, 0);
      table.append(make("tr", {}, make("td", {}, cohort), make("td", { class: "number" }, cases),
        make("td", { class: error > 1 ? "number over" : "number" }, show(error))));
    }
    return table;
  }

  function describe(row) {
    const figures = [
      row.cases ? `${row.cases} cases` : "",
      row.error === null || row.error === undefined ? "" : `error ${show(row.error)}`,
      row.status === "not run" ? "" : `${row.seconds} s`,
    ].filter(Boolean).join(" · ");
    const status = row.status.replace(" ", "-");
    return make("div", { class: "row" },
      make("span", { class: "figures" }, figures),
      make("h3", { class: status }, `${marks[row.status]} ${row.check}`),
      make("p", { class: "soft" }, data.summaries[row.check] || ""),
      row.code ? make("p", {}, make("code", { class: "code" }, row.code)) : null,
      row.message ? make("pre", { class: row.status === "failed" ? "message" : "" }, row.message) : null,
      row.case ? make("p", {}, "smallest case: ", make("code", {}, row.case)) : null,
      row.snippet ? make("pre", {}, row.snippet) : null,
      row.command && row.status === "failed" ? make("p", {}, "repeat: ", make("code", {}, row.command)) : null,
      ...(row.notes || []).filter((note) => !note.startsWith("cohorts:")).map((note) => make("p", { class: "soft" }, note)),
      cohorts(row));
  }

  const panel = find("panel");
  function open(operator, kernel, runtime) {
    const rows = data.rows.filter((row) => row.operator === operator && row.kernel === kernel &&
      (!runtime || row.runtime === runtime));
    if (!rows.length) return;
    const order = ["failed", "cut short", "passed", "not applicable", "not run"];
    const sorted = [...rows].sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
    find("panel-title").textContent = [operator, kernel, runtime].filter(Boolean).join(" · ");
    const drawn = plots(rows);
    find("panel-body").replaceChildren(...(drawn ? [drawn] : []), ...sorted.map(describe));
    panel.showModal();
    panel.scrollTop = 0;
    history.replaceState(null, "", "#" + [operator, kernel, runtime].map(encodeURIComponent).join("/"));
  }
  find("matrix").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const line = button.closest("tr");
    open(line.dataset.operator, line.dataset.kernel, button.dataset.runtime);
  });
  find("panel-close").addEventListener("click", () => panel.close());
  panel.addEventListener("click", (event) => { if (event.target === panel) panel.close(); });
  panel.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
  if (location.hash.split("/").length === 3) open(...location.hash.slice(1).split("/").map(decodeURIComponent));

  // --- filters ---------------------------------------------------------------------------------

  const codes = grouped(data.rows.filter((row) => row.code), (row) => `${row.operator}\n${row.kernel}`);
  function filter() {
    const name = find("filter-name").value.trim().toLowerCase();
    const runtime = find("filter-runtime").value;
    const code = find("filter-code").value;
    const failedOnly = find("filter-failed").checked;
    const lines = [...document.querySelectorAll("#matrix tbody tr")];
    for (const line of lines) {
      const { operator, kernel } = line.dataset;
      const failures = (codes.get(`${operator}\n${kernel}`) || [])
        .filter((row) => (!code || row.code === code) && (!runtime || row.runtime === runtime));
      line.hidden = !operator.toLowerCase().includes(name) ||
        ((code || failedOnly) && !failures.length) ||
        (Boolean(runtime) && !line.querySelector(`button[data-runtime="${CSS.escape(runtime)}"]`));
      for (const cell of line.querySelectorAll("td")) {
        cell.classList.toggle("dim", Boolean(runtime) && cell.dataset.column !== runtime);
      }
    }
    for (const failure of document.querySelectorAll(".failure")) {
      const own = failure.dataset;
      failure.hidden = !own.operator.toLowerCase().includes(name) ||
        (Boolean(runtime) && own.runtime !== runtime) || (Boolean(code) && own.code !== code);
    }
    const shown = lines.filter((line) => !line.hidden).length;
    find("shown").textContent = `${shown} of ${lines.length} kernels`;
    find("nothing").hidden = shown > 0;
  }
  find("filters").hidden = false;
  find("filters").addEventListener("input", filter);
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
