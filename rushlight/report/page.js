"use strict";
// The page's code. Data flows one way: `data` (JSON) -> indexes made once -> sections, each drawn by
// one function; a choice in the selectors draws the path again, a line that is pointed at lights
// lines by their keys. User's text goes in by textContent only.
const data = JSON.parse(document.getElementById("data").textContent);
const doc = data.documented, run = data.observed;
const $ = id => document.getElementById(id);

function h(tag, attributes, ...children) {
  const svg = ["svg", "g", "rect", "path", "text", "marker", "defs", "title", "line"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v !== null && v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.flat(9).filter(c => c !== null && c !== undefined && c !== ""));
  return e;
}
const put = (id, ...children) => $(id).replaceChildren(...children.flat(9).filter(c => c));

// ---- words

function three(v) { return v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : Math.round(v).toLocaleString("en"); }
function ns(v) {
  if (v === null || v === undefined) return "";
  for (const [unit, size] of [["ns", 1], ["us", 1e3], ["ms", 1e6]])
    if (v < size * 999.5) return unit === "ns" ? Math.round(v) + " ns" : three(v / size) + " " + unit;
  return three(v / 1e9) + " s";
}
function bytes(v) {
  for (const unit of ["bytes", "kB", "MB"]) {
    if (v < 999.5) return (unit === "bytes" ? Math.round(v) : three(v)) + " " + unit;
    v /= 1000;
  }
  return three(v) + " GB";
}
const count = (n, word) => n.toLocaleString("en") + " " + word + (n === 1 ? "" : "s");
const shortPath = p => p.split("/").slice(-2).join("/");

function table(columns, rows) {  // columns: [title, numeric?]
  return h("div", {class: "wide"}, h("table", {},
    h("thead", {}, h("tr", {}, columns.map(([t, n]) => h("th", {class: n ? "n" : null, scope: "col"}, t)))),
    h("tbody", {}, rows.map(r => h("tr", {}, r.map((c, i) => h("td", {class: columns[i][1] ? "n" : null}, c)))))));
}
const none = text => h("p", {class: "none"}, text);

// ---- the selectors and what hangs on them

const stageById = Object.fromEntries(doc.stages.map(s => [s.id, s]));
const stepById = Object.fromEntries(doc.steps.map(s => [s.id, s]));
const state = {};
for (const d of doc.dimensions) state[d.id] = run ? run[d.id] : d.default;
if (data.show) Object.assign(state, data.show);

function selection() { return data.selections.find(s => s.mode === state.mode && s.device === state.device); }
function observed() {
  return run ? run.selections.find(s => s.mode === state.mode && s.device === state.device) : null;
}

function drawSelectors() {
  put("selectors", doc.dimensions.map(d => h("fieldset", {}, h("legend", {}, d.legend),
    d.options.map(o => h("label", {}, h("input", {type: "radio", name: d.id, value: o.value, checked: state[d.id] === o.value,
      onchange: () => { state[d.id] = o.value; drawPath(); }}), " " + o.label)))));
}

function drawPath() {
  const chosen = selection(), seen = observed();
  const took = seen ? (seen.taken ? "" : ". This run did not take it: what stands here is documented, not observed.") : "";
  $("status").textContent = chosen.status + took;
  drawDiagram(chosen, seen);
  drawSteps(chosen, seen);
  drawStages(chosen, seen);
}

// ---- diagram, steps, stages

function drawDiagram(chosen, seen) {
  const W = 168, H = 44, DX = 190, DY = 68, at = s => [10 + s.position[0] * DX, 10 + s.position[1] * DY];
  const wide = Math.max(...doc.stages.map(s => at(s)[0])) + W + 10, high = Math.max(...doc.stages.map(s => at(s)[1])) + H + 14;
  const told = seen ? Object.fromEntries(seen.stages.map(s => [s.id, s])) : {};
  const toldStep = seen ? Object.fromEntries(seen.steps.map(s => [s.id, s])) : {};
  const svg = h("svg", {viewBox: `0 0 ${wide} ${high}`, width: "100%", role: "img", "aria-label": chosen.status},
    h("defs", {}, h("marker", {id: "tip-end", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"},
      h("path", {d: "M0 0 L8 4 L0 8 z", fill: "currentColor"}))));
  for (const step of doc.steps) {
    const [x1, y1] = at(stageById[step.from]), [x2, y2] = at(stageById[step.to]);
    const on = chosen.steps.includes(step.id), grey = on && seen && !toldStep[step.id].taken;
    const flat = y1 === y2, a = flat ? [x1 + W, y1 + H / 2] : [x1 + W / 2, y1 + H], b = flat ? [x2, y2 + H / 2] : [x2 + W / 2, y2];
    const my = (a[1] + b[1]) / 2;
    svg.append(h("path", {class: "edge" + (on ? grey ? " grey" : "" : " off"), "marker-end": "url(#tip-end)",
      d: `M${a[0]} ${a[1]} C ${a[0]} ${my}, ${b[0]} ${my}, ${b[0]} ${b[1]}`}, h("title", {}, step.label)));
    if (on) svg.append(h("text", {class: "small", x: (a[0] + b[0]) / 2 + 5, y: my + 3}, step.label));
  }
  for (const s of doc.stages) {
    const [x, y] = at(s), on = chosen.stages.includes(s.id), t = told[s.id];
    const how = !on ? " off" : !seen ? "" : t.taken ? " taken" : " grey";
    const second = on && t && t.taken ? (t.ns ? ns(t.ns) : count(t.count, "time")) : doc.stage_kinds[s.kind];
    svg.append(h("g", {class: `box layer-${s.layer}${how}`, tabindex: on ? 0 : -1, role: "button", "aria-label": s.name,
      onclick: () => openStage(s.id), onkeydown: e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); openStage(s.id); } }},
      h("rect", {x, y, width: W, height: H}), h("text", {x: x + W / 2, y: y + 19, "text-anchor": "middle"}, s.name),
      h("text", {class: "small", x: x + W / 2, y: y + 34, "text-anchor": "middle"}, second), h("title", {}, t ? t.sentence : s.summary)));
  }
  put("diagram", svg);
}

function openStage(id) {
  const d = $("stage-" + id);
  if (d) { d.open = true; d.scrollIntoView({block: "start"}); d.querySelector("summary").focus({preventScroll: true}); }
}

const sourcesOf = item => item.sources.map(k => h("a", {href: doc.sources[k].url, rel: "noreferrer", title: "checked " + doc.sources[k].checked}, doc.sources[k].title))
  .flatMap((a, i) => i ? [", ", a] : [a]);

function drawSteps(chosen, seen) {
  const told = seen ? Object.fromEntries(seen.steps.map(s => [s.id, s])) : {};
  const rank = Object.fromEntries(chosen.stages.map((id, i) => [id, i]));
  const ordered = [...chosen.steps].sort((a, b) => rank[stepById[a].from] - rank[stepById[b].from] || rank[stepById[a].to] - rank[stepById[b].to]);
  put("steps", ordered.map(id => {
    const s = stepById[id], t = told[id], grey = t && !t.taken;
    return h("li", {class: grey ? "grey" : null}, h("b", {}, stageById[s.from].name), ` ${s.label} `, h("b", {}, stageById[s.to].name), ". ",
      s.summary, t && t.sentence ? h("span", {class: "tag"}, t.sentence) : null, grey ? h("span", {class: "tag"}, "not in this run") : null);
  }));
}

function drawStages(chosen, seen) {
  const told = seen ? Object.fromEntries(seen.stages.map(s => [s.id, s])) : {};
  const open = new Set([...document.querySelectorAll("#stagelist details[open]")].map(d => d.id));
  const order = [...chosen.stages, ...doc.stages.map(s => s.id).filter(id => !chosen.stages.includes(id))];
  put("stagelist", order.map((id, i) => {
    const s = stageById[id], t = told[id], on = chosen.stages.includes(id), grey = !on || t && !t.taken;
    const mine = artifacts.filter(a => within(a.stage) === id);
    return h("details", {id: "stage-" + id, class: grey ? "grey" : null, open: open.has("stage-" + id)},
      h("summary", {}, h("b", {}, (on ? i + 1 + ". " : "") + s.name), h("span", {class: "tag"}, doc.stage_kinds[s.kind]),
        h("span", {class: "tag"}, layerName(s.layer)), t ? h("span", {class: "tag vendor"}, t.vendor) : null, t && t.taken && t.ns ? h("span", {class: "tag"}, ns(t.ns)) : null, t ? t.sentence : s.summary),
      t ? h("div", {class: "observed"}, h("div", {class: "label"}, t.taken ? "in this run" : "not taken"), h("p", {}, t.sentence),
        t.finer.length ? table([["finer stage"], ["count", 1], ["time", 1], ["what happened"]], t.finer.map(f => [h("span", {title: f.what}, f.id), String(f.count), ns(f.ns), f.sentence])) : null,
        mine.length ? h("p", {}, mine.slice(0, 24).map(a => artifactButton(a)), mine.length > 24 ? ` and ${mine.length - 24} more, under Line by line` : "") : null) : null,
      h("div", {class: "documented"}, h("div", {class: "label"}, "documented"), h("p", {}, s.summary + " " + s.explanation), h("p", {}, "Evidence: " + s.evidence),
        t && t.vendor !== "Rushlight" ? null : h("p", {}, "In Rushlight: " + s.rushlight), h("p", {}, "Sources: ", sourcesOf(s))));
  }));
}
const layerName = id => doc.layers.find(l => l.id === id).name;

// ---- artifacts, their keys, and the index from key to lines

const PARENTS = data.parents || {};
function within(stage) { while (PARENTS[stage]) stage = PARENTS[stage]; return stage; }
const artifacts = [], index = new Map();

function addArtifact(a) {
  a.lines = a.text.replace(/\n$/, "").split("\n");
  a.number = artifacts.length;
  artifacts.push(a);
  a.keys = a.lines.map((_, i) => [...new Set(keysOf(a, i + 1))]);
  a.keys.forEach((keys, i) => keys.forEach(k => {
    if (!index.has(k)) index.set(k, []);
    index.get(k).push([a, i]);
  }));
}
function keysOf(a, n) {
  const keys = [], chain = (a.origins || {})[n];
  if (chain && chain.length && /^[^\s>]+:\d+$/.test(chain[0])) keys.push("L|" + chain[0]);
  for (const name of (a.makes || {})[n] || []) keys.push(`V|${a.unit}|${name.replace(/_(own_)?\d+$/, "")}`);
  for (const [from, to, name] of a.spans || []) if (n >= from && n <= to && (!keys.length || n === from)) keys.push(...(a.stepKeys && a.stepKeys[name] || []));
  if (a.user) keys.push(`L|${a.user}:${n}`);
  return keys;
}

function readArtifacts() {
  for (const f of data.files || []) addArtifact({group: "Your source", title: f.name, stage: "python_code", language: "python", text: f.text, user: f.name, path: f.path});
  for (const c of run ? run.captures : []) {
    const group = `Capture ${c.unit}`;
    for (const a of c.artifacts) addArtifact({...a, group, unit: c.unit, fates: a.stage === "fx_graph" && !a.text.includes("ops.") ? c.eliminated : null, title: `${stageWord(a.stage)}: ${a.title}`});
    for (const g of c.graphs) {
      const stepKeys = {};
      for (const s of g.steps) stepKeys[s.name] = [...s.lines.map(l => "L|" + l), ...s.makes.map(m => `V|${c.unit}|${m}`)];
      for (const a of g.artifacts) addArtifact({...a, group: `Graph ${g.label}`, unit: c.unit, graph: g.label, stepKeys, title: `${stageWord(a.stage)}: ${a.title}`});
    }
  }
  for (const k of data.kernels || []) for (const v of k.views) {
    const stepKeys = {[k.key]: k.lines.map(l => "L|" + l)};
    addArtifact({group: `Kernel ${k.key}`, title: `${v.title} (${k.key})`, stage: "aten_cpu", language: v.language, text: v.text, kernel: k.key, stepKeys, spans: [[1, v.text.split("\n").length, k.key]], origins: v.origins});
  }
}
const stageWord = id => (data.stage_names || {})[id] || id.replaceAll("_", " ");

function artifactButton(a, text) {
  return h("button", {type: "button", title: a.group, onclick: () => { show("right", a); $("views").scrollIntoView(); }}, text || a.title);
}

const panes = {left: null, right: null};
let pinned = null;

function show(side, a, line) {
  panes[side] = a;
  const host = $(side), select = h("select", {"aria-label": side + " view", onchange: e => show(side, artifacts[+e.target.value])});
  const groups = new Map();
  for (const x of artifacts) { if (!groups.has(x.group)) groups.set(x.group, []); groups.get(x.group).push(x); }
  for (const [name, list] of groups) select.append(h("optgroup", {label: name}, list.map(x => h("option", {value: x.number, selected: x === a}, x.title))));
  const code = h("div", {class: "code", tabindex: 0, role: "region", "aria-label": a.title,
    onmouseover: e => { const row = e.target.closest(".line"); if (row && !pinned) light(a.keys[+row.dataset.i]); },
    onclick: e => { const row = e.target.closest(".line"); if (row) pin(a, +row.dataset.i); },
    onkeydown: e => walk(e, a, code)});
  code.append(...a.lines.map((text, i) => h("div", {class: "line" + (linked(a, i) ? " linked" : "") + (a.marks && a.marks.has(i) ? " " + a.marks.get(i) : ""), "data-i": i, title: originText(a, i)}, h("span", {class: "no"}, String(i + 1)), h("span", {}, text || " "))));
  host.replaceChildren(select, code);
  if (pinned) light(pinned.keys, true);
  if (line !== undefined) reveal(side, line);
}
const linked = (a, i) => a.keys[i].some(k => (index.get(k) || []).some(hit => hit[0] !== a));
function originText(a, i) { const chain = (a.origins || {})[i + 1]; return chain ? chain.join(" > ") + (fate(a, i) ? "; no kernel: " + fate(a, i) : "") : null; }
function fate(a, i) {  // why no kernel came of a node of the captured graph
  if (!a.fates) return "";
  const name = ((a.makes || {})[i + 1] || []).find(n => a.fates[n]);
  return name ? a.fates[name] : "";
}
function rowOf(side, i) { return $(side).querySelector(`.line[data-i="${i}"]`); }
function reveal(side, i) { const row = rowOf(side, i), code = row && row.parentElement; if (row) code.scrollTop = row.offsetTop - code.clientHeight / 3; }

function walk(e, a, code) {
  const step = {ArrowDown: 1, ArrowUp: -1}[e.key];
  if (step) {
    e.preventDefault();
    const at = code.dataset.at === undefined ? -1 : +code.dataset.at, next = Math.max(0, Math.min(a.lines.length - 1, at + step));
    code.dataset.at = next;
    code.querySelectorAll(".found").forEach(r => r.classList.remove("found"));
    const row = code.children[next];
    row.classList.add("found");
    if (row.offsetTop < code.scrollTop || row.offsetTop > code.scrollTop + code.clientHeight - 30) code.scrollTop = row.offsetTop - code.clientHeight / 2;
    if (!pinned) light(a.keys[next]);
  } else if (e.key === "Enter" && code.dataset.at !== undefined) pin(a, +code.dataset.at);
  else if (e.key === "Escape") { pinned = null; light([]); }
}
function pin(a, i) {
  const same = pinned && pinned.a === a && pinned.i === i;
  pinned = same || !a.keys[i].length ? null : {a, i, keys: a.keys[i]};
  light(pinned ? pinned.keys : [], !!pinned);
  if (pinned && fate(a, i)) $("also").append(h("p", {class: "dim"}, "No kernel is behind this node: " + fate(a, i)));
  if (pinned) for (const side of ["left", "right"]) if (panes[side] && panes[side] !== a) {
    const first = panes[side].keys.findIndex(k => k.some(x => pinned.keys.includes(x)));
    if (first >= 0) reveal(side, first);
  }
}
function light(keys, kept) {
  const want = new Set(keys);
  for (const side of ["left", "right"]) {
    const a = panes[side];
    if (!a) continue;
    $(side).querySelectorAll(".line.lit, .line.pin").forEach(r => r.classList.remove("lit", "pin"));
    if (want.size) a.keys.forEach((k, i) => { if (k.some(x => want.has(x))) { const r = rowOf(side, i); if (r) r.classList.add(kept ? "pin" : "lit"); } });
  }
  document.querySelectorAll(".node").forEach(n => n.classList.toggle("lit", !!n.keys && n.keys.some(k => want.has(k))));
  const hits = new Map();
  for (const k of keys) for (const [a, i] of index.get(k) || []) if (a !== panes.left && a !== panes.right && !hits.has(a)) hits.set(a, i);
  const lines = keys.filter(k => k.startsWith("L|")).map(k => k.slice(2));
  const told = new Set(), first = [], rest = [];  // one of each stage before the others
  for (const hit of hits) { const kind = hit[0].stage + hit[0].language; (told.has(kind) ? rest : first).push(hit); told.add(kind); }
  put("also", lines.length ? h("b", {}, lines.join(", ")) : null, " ", [...first, ...rest].slice(0, 18).map(([a, i]) =>
    h("button", {type: "button", title: a.group, onclick: () => show("right", a, i)}, a.title)), hits.size > 18 ? `and ${hits.size - 18} more` : null);
}

function drawViews() {
  if (!artifacts.length) { put("views", h("h2", {}, "Line by line"), none("Give a script: its source, graphs and generated code stand here, linked by line.")); return; }
  const pick = test => artifacts.find(test);
  show("left", pick(a => a.stage === "python_code") || artifacts[0]);
  show("right", pick(a => a.stage === "fx_graph") || pick(a => a.language === "cpp") || artifacts[artifacts.length - 1]);
}

// ---- why

function refusedTable(list) {
  const shown = list.slice(0, 60);
  return h("div", {}, table([["what"], ["why"], ["what to do"], ["where"]], shown.map(r => [r.what + (r.count > 1 ? ` (${r.count} times)` : ""), h("span", {title: r.id}, r.why), r.hint, placeButton(r.where)])),
    list.length > 60 ? h("p", {class: "dim"}, `and ${list.length - 60} more, in the JSON`) : null);
}
function placeButton(where, more) {
  const m = /^(.*?):(\d+)/.exec(where || "");
  if (!m) return where || "";
  const a = artifacts.find(x => x.user === m[1]) || artifacts.find(x => x.path === m[1]);
  const text = (a ? a.user + where.slice(m[1].length) : shortPath(where)) + (typeof more === "string" ? more : "");
  return a ? h("button", {type: "button", class: "place", onclick: () => { show("left", a, +m[2] - 1); pin(a, +m[2] - 1); $("views").scrollIntoView(); }}, text) : text;
}
const plain = what => what.replace(/_\d+(?=\b|_over)/g, "").replace(/\[\d+\]/g, "").replace(/ over \[[^\]]*\]( rows \[[^\]]*\])?/, "");
const tally = list => { const seen = new Map(); for (const r of list) { const what = plain(r.what), k = JSON.stringify([r.id, what, r.why, r.where]); if (seen.has(k)) seen.get(k).count++; else seen.set(k, {...r, what, count: 1}); } return [...seen.values()].sort((a, b) => b.count - a.count); };

function drawWhy() {
  if (!run) { put("whybody", none("Give a script: guards, recompiles, graph breaks, refused fusions and fallbacks of its run stand here.")); return; }
  const parts = [], add = (title, body) => parts.push(h("h3", {}, title), body);
  const graphs = run.captures.flatMap(c => c.graphs);
  const compiled = run.captures.length || run.functions.length;
  if (compiled) {
    add("Which lines were compiled", run.captures.length ? table([["function"], ["capture"], ["why"], ["operators"], ["lines"], ["graph broke at"]], run.captures.map(c => {
      const lines = [...new Set(c.graphs.flatMap(g => g.steps.flatMap(s => s.lines)))].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
      return [c.function, c.unit, c.recompiles.length ? c.recompiles[0].why : "its first call", String(c.graphs.reduce((n, g) => n + g.steps.reduce((m, s) => m + s.operators.length, 0), 0)),
        lines.flatMap(l => [placeButton(l), " "]), c.breaks.map(b => placeButton(b.where))];
    })) : none("Nothing was captured."));
    const breaks = tally(run.captures.flatMap(c => c.breaks.map(b => ({...b, what: `${c.function}: ${b.what}`}))));
    add("Graph breaks", breaks.length ? refusedTable(breaks) : none("None: each capture is one graph."));
    const again = run.captures.filter(c => c.recompiles.length);
    const changes = tally(again.flatMap(c => c.recompiles.map(r => ({...r, what: c.function}))));
    add("Recompiles", changes.length ? table([["function"], ["what changed"], ["read at"], ["times", 1]], changes.map(r => [r.what, r.why, placeButton(r.where), String(r.count)])) : none("None."));
    add("Guards", run.captures.map(c => h("details", {}, h("summary", {}, h("b", {}, c.unit), count(c.guards.length, "guard")),
      table([["checked at each call"], ["read at"]], c.guards.map(([text, where]) => [h("span", {class: "mono"}, text), placeButton(where)])))));
    const refused = graphs.flatMap(g => g.refused);
    const fusions = tally(refused.filter(r => r.id.startsWith("fusion."))), falls = tally(refused.filter(r => r.id.startsWith("fallback.")));
    add("Fusions that were refused", fusions.length ? refusedTable(fusions) : none("None."));
    add("Operators without generated code", falls.length ? refusedTable(falls) : none("None."));
    const files = graphs.filter(g => Object.keys(g.symbols).length);
    add("Artifact cache", files.length ? table([["graph"], ["on disk"], ["compiler", 0], ["took", 1]], files.map(g => [g.label, g.cache || "not asked", g.compiler, g.compiler_ms ? ns(g.compiler_ms * 1e6) : ""])) : none("No graph needed generated code."));
  }
  const reads = run.facts.waits || run.facts.reads || [];
  if (reads.length) add(run.facts.waits ? "Where Python waited for the GPU" : "Where Python read numbers of tensors, and would wait for a GPU",
    table([["what was read"], ["times", 1], ["took", 1], ["line"]], reads.map(w => [h("span", {class: "mono"}, w.what), String(w.count), ns(w.ns), placeButton(w.line)])));
  const shown = /^(fusion|fallback|capture)\.|^cache\.miss/;
  const rest = run.refusals.filter(r => !compiled || !shown.test(r.id));
  add("Whatever else was not done", rest.length ? refusedTable(rest) : none("Nothing."));
  put("whybody", parts);
}

// ---- time

function limitShare(r) {  // the nearer of two limits: what the memory moves, what products compute
  const l = data.limits;
  if (!l || !r.ns || !(r.moved || r.operations && l.operations_per_ns)) return "";
  const moved = r.moved / r.ns / l.bytes_per_ns, computed = l.operations_per_ns ? (r.operations || 0) / r.ns / l.operations_per_ns : 0, share = Math.max(moved, computed);
  const what = computed > moved ? `arithmetic: ${three(l.operations_per_ns)} GFLOP/s` : `memory: ${three(l.bytes_per_ns)} GB/s`;
  return h("span", {title: `of ${what}, measured on this machine in this run`}, h("span", {class: "bar", style: `width:${Math.min(1, share) * 70}px`}), Math.round(share * 100) + " %" + (computed > moved ? " of arithmetic" : " of memory"));
}
function drawTime() {
  if (!run) { put("timebody", none("Give a script: compile time by stage, and each kernel's time, stand here.")); return; }
  const parts = [], add = (title, body) => parts.push(h("h3", {}, title), body);
  const stages = {};
  for (const c of run.captures) { if (c.capture_ms) stages.capture = (stages.capture || 0) + c.capture_ms; for (const [k, v] of Object.entries(c.stage_ms)) stages[k] = (stages[k] || 0) + v; }
  const most = Math.max(1e-9, ...Object.values(stages));
  if (Object.keys(stages).length) add("Compiling, once", table([["stage"], ["time", 1], [""]], Object.entries(stages).map(([k, v]) => [k, ns(v * 1e6), h("span", {class: "bar", style: `width:${v / most * 320}px`})])));
  if (run.functions.length) add("A call of compiled code", table([["function"], ["calls", 1], ["that captured", 1], ["a call", 1], ["in graphs", 1], ["guards, wrapper, between graphs", 1], ["called at"]],
    run.functions.map(f => { const n = f.calls - f.misses; return [f.function, String(f.calls), String(f.misses), n ? ns(f.hit_ns / n) : "", n ? ns(f.hit_graph_ns / n) : "", n ? ns((f.hit_ns - f.hit_graph_ns) / n) : "", f.where.map(placeButton)]; })));
  const rows = kernelRows();
  add("Kernels and library routines, costliest first", rows.length ? table([["what"], ["how"], ["calls", 1], ["time", 1], ["a call", 1], ["moved", 1], ["of the limit"], ["your lines"]],
    rows.slice(0, 60).map(r => [sourceButton(r), r.how + (r.cold ? ", its first call" : ""), String(r.calls), ns(r.ns), ns(r.ns / r.calls), r.moved ? bytes(r.moved / r.calls) : "", limitShare(r), r.lines.slice(0, 6).map(placeButton)])) : none("No kernel ran."));
  if (rows.length > 60) parts.push(h("p", {class: "dim"}, `and ${rows.length - 60} more, in the JSON`));
  if (run.facts.gpu_work) add("What the GPU did, longest first", gpuWork(run.facts.gpu_work));
  if (run.facts.gpu_times) parts.push(h("p", {class: "dim"}, gpuTimes(run.facts.gpu_times)));
  add("Timeline", timeline());
  put("timebody", parts);
}
function sourceButton(r) {
  const mine = a => r.graph ? a.graph === r.graph.label && (a.spans || []).some(s => s[2] === r.name) : a.kernel === r.name;
  const own = run.device === "gpu" ? [x => x.stage === "triton_kernels", "sass"] : [x => x.language === "cpp", "asm"];
  const a = artifacts.find(x => mine(x) && own[0](x)) || artifacts.find(mine);
  if (!a) return h("span", {class: "mono"}, r.name);
  const asm = artifacts.find(x => mine(x) && x.language === own[1]);
  const at = x => (x.spans.find(s => s[2] === r.name) || [1])[0] - 1;
  const go = x => () => { show("right", x, at(x)); $("views").scrollIntoView(); };
  return [h("button", {type: "button", class: "mono", onclick: go(a)}, r.name), asm ? h("button", {type: "button", onclick: go(asm)}, "machine code") : null];
}

function timeline() {
  const t = data.timeline;
  if (!t || !t.events.length) return none("No call was recorded.");
  const end = Math.max(...t.events.map(e => e[1])), colour = {compiled: "--compiler", graph: "--framework", fused: "--kernel", kernel: "--kernel", library: "--hardware", view: "--rule", program: "--python", none: "--dim"};
  let from = 0, to = end;
  const canvas = h("canvas", {tabindex: 0, role: "img", "aria-label": "Calls over time: compiled functions, graphs, kernels, library routines"}), note = h("p", {class: "dim"});
  function paint() {
    const scale = window.devicePixelRatio || 1, w = canvas.clientWidth || 900, hh = 210;
    canvas.width = w * scale; canvas.height = hh * scale;
    const g = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
    g.scale(scale, scale);
    g.font = "11px sans-serif";
    for (const [a, b, depth, kind, name] of t.events) {
      if (b < from || a > to) continue;
      const x = (a - from) / (to - from) * w, x2 = (b - from) / (to - from) * w, y = 8 + Math.min(depth, 7) * 24;
      g.fillStyle = css.getPropertyValue(colour[kind] || "--dim");
      g.fillRect(x, y, Math.max(1, x2 - x), 20);
      if (x2 - x > 60) { g.fillStyle = css.getPropertyValue("--ground"); g.fillText(t.names[name].slice(0, Math.floor((x2 - x) / 6.5)), Math.max(2, x + 3), y + 14); }
    }
    note.textContent = `${ns(from)} to ${ns(to)} of ${ns(end)}` + (t.left_out ? `; ${t.left_out} calls in the middle are left out` : "");
  }
  function zoom(factor, at) {
    const centre = from + (to - from) * at, half = Math.max(200, (to - from) * factor);
    from = Math.max(0, centre - half * at); to = Math.min(end, from + half); paint();
  }
  const move = by => { const d = (to - from) * by; if (from + d < 0 || to + d > end) { if (d < 0) { to -= from; from = 0; } else { from += end - to; to = end; } } else { from += d; to += d; } paint(); };
  canvas.addEventListener("wheel", e => { if (!e.ctrlKey && !e.shiftKey) return; e.preventDefault(); zoom(e.deltaY > 0 ? 1.3 : 0.75, e.offsetX / canvas.clientWidth); }, {passive: false});
  canvas.addEventListener("keydown", e => { const k = {"+": () => zoom(.6, .5), "-": () => zoom(1.7, .5), ArrowLeft: () => move(-.25), ArrowRight: () => move(.25), "0": () => { from = 0; to = end; paint(); }}[e.key]; if (k) { e.preventDefault(); k(); } });
  canvas.addEventListener("mousemove", e => {
    const time = from + e.offsetX / canvas.clientWidth * (to - from), depth = Math.floor((e.offsetY - 8) / 24);
    const hit = t.events.filter(v => v[0] <= time && v[1] >= time && Math.min(v[2], 7) === depth).pop();
    tip(hit ? `${t.names[hit[4]]}: ${ns(hit[1] - hit[0])}` : "", e);
  });
  canvas.addEventListener("mouseleave", () => tip(""));
  new ResizeObserver(paint).observe(canvas);
  const b = (text, f) => h("button", {type: "button", onclick: f}, text);
  return h("div", {}, h("p", {}, b("closer", () => zoom(.5, .5)), b("wider", () => zoom(2, .5)), b("earlier", () => move(-.5)), b("later", () => move(.5)), b("all", () => { from = 0; to = end; paint(); })), canvas, note);
}
function tip(text, e) {
  const t = $("tip");
  t.hidden = !text;
  t.textContent = text;
  if (text) { t.style.left = Math.min(e.clientX + 14, window.innerWidth - 320) + "px"; t.style.top = e.clientY + 16 + "px"; }
}

// ---- the model as a graph

const PIECES = /^\s+(\w+)(?:: "?([^"=]+?)"?)? = (?:ops\.|_)?([\w.]+)\((.*?)\)\s*(?:;.*)?(?:#.*)?$/;
function parseGraph(a, c) {
  const nodes = new Map(), edges = [];
  const first = a.lines.findIndex(l => /^\s*def /.test(l)), last = a.lines.findIndex((l, i) => i >= first && /\).*:\s*$/.test(l));
  const head = first < 0 ? "" : a.lines.slice(first, last + 1).join(" ");  // over several lines where it is long
  for (const m of head.matchAll(/(\w+): "?([a-z]+\d*\[[^\]]*\])/g)) nodes.set(m[1], {id: m[1], op: "input", layout: m[2], input: true, module: "", keys: []});
  const names = Object.create(null);  // another name of an input -> its name
  a.lines.forEach((line, i) => {
    const m = PIECES.exec(line), same = m ? null : /^\s+(\w+) = (\w+)$/.exec(line);
    if (same) names[same[1]] = same[2];
    if (!m) return;
    const [, id, layout, op, args] = m, mod = (c.modules[id] || c.modules[id.replace(/_\d+$/, "")] || [""])[0];
    nodes.set(id, {id, op, layout: layout || "", module: modulePath(mod), keys: a.keys[i], line: i, className: (c.modules[id] || [])[1]});
    for (const name of new Set((args.match(/[A-Za-z_]\w*/g) || []).map(n => names[n] || n))) if (nodes.has(name) && name !== id) edges.push([name, id]);
  });
  for (const n of nodes.values()) if (n.input) { const p = paramModule(n.id); n.parameter = p !== null; if (n.parameter) { const user = edges.find(e => e[0] === n.id); n.module = user ? nodes.get(user[1]).module : p; } }
  return {nodes, edges};
}
const modulePath = source => [...source.matchAll(/_modules\['([^']+)'\]|_modules\["([^"]+)"\]/g)].map(m => m[1] || m[2]).join(".");
const paramModule = id => { if (/^L_self_\w*_parameters_\w+_$/.test(id)) return ""; const m = /^(.*?)_*parameters__(\w+)$/.exec(id); return m ? [...m[1].matchAll(/modules__(\w+?)(?=____|__$|$)/g)].map(x => x[1]).join(".") : null; };
const size = layout => { const m = /\[([^\]]*)\]/.exec(layout); return m && m[1] ? m[1].split(",").reduce((p, n) => p * (parseInt(n) || 1), 1) : 1; };

function drawModel() {
  const choices = [];
  for (const c of run ? run.captures : []) for (const a of artifacts) if (a.unit === c.unit && a.language === "graph") choices.push([c, a]);
  if (!choices.length) { put("modelbody", none(run ? "No graph was captured: eager mode calls one operator at a time." : "Give a script: its captured graph stands here.")); return; }
  const host = h("div", {class: "graph"}), open = new Set();
  let [capture, artifact] = choices[0], parsed = null;
  const note = h("p", {class: "dim"});
  const select = h("select", {"aria-label": "which graph", onchange: e => { [capture, artifact] = choices[+e.target.value]; start(); }}, choices.map(([c, a], i) => h("option", {value: i}, `${c.unit}: ${a.title}`)));
  function start() {
    parsed = parseGraph(artifact, capture);
    open.clear();
    const shallow = new Set([...parsed.nodes.values()].map(n => n.module).filter(Boolean));
    if (parsed.nodes.size <= 40) shallow.forEach(m => m.split(".").forEach((_, i, all) => open.add(all.slice(0, i + 1).join("."))));
    paint();
  }
  function owner(n) {  // the outermost closed module that holds the node, or the node
    const parts = n.module ? n.module.split(".") : [];
    for (let i = 1; i <= parts.length; i++) { const m = parts.slice(0, i).join("."); if (!open.has(m)) return "module " + m; }
    return n.id;
  }
  function paint() {
    const shown = new Map(), count_ = {}, params = {};
    for (const n of parsed.nodes.values()) {
      if (n.parameter) { params[owner(n)] = (params[owner(n)] || 0) + size(n.layout); continue; }
      const o = owner(n);
      if (o.startsWith("module ")) { count_[o] = (count_[o] || 0) + 1; if (!shown.has(o)) shown.set(o, {id: o, group: o.slice(7), keys: []}); shown.get(o).keys.push(...n.keys); } else shown.set(o, n);
    }
    const g = new dagre.graphlib.Graph({multigraph: false}).setGraph({rankdir: "TB", nodesep: 18, ranksep: 34, edgesep: 8}).setDefaultEdgeLabel(() => ({}));
    for (const [id, n] of shown) {
      const label = n.group || n.op, second = n.group ? [count(count_[id], "operator"), params[id] ? count(params[id], "parameter") : ""].filter(Boolean).join(", ") : n.layout;
      n.label = label; n.second = second;
      g.setNode(id, {width: Math.max(80, 8.2 * Math.max(label.length, second.length * .85) + 16), height: 40});
    }
    const drawn = new Map();
    for (const [a, b] of parsed.edges) {
      const from = parsed.nodes.get(a), x = owner(from), y = owner(parsed.nodes.get(b));
      if (from.parameter || x === y || !shown.has(x) || !shown.has(y)) continue;
      drawn.set(x + "\n" + y, [x, y, from.layout]);
    }
    for (const [x, y] of drawn.values()) g.setEdge(x, y);
    if (shown.size > 700) { host.replaceChildren(none(`${shown.size} nodes are open: close some modules.`)); return; }
    dagre.layout(g);
    const {width, height} = g.graph(), svg = h("svg", {width: (width || 100) + 110, height: (height || 60) + 24, viewBox: `-12 -12 ${(width || 100) + 110} ${(height || 60) + 24}`, role: "img", "aria-label": artifact.title});
    for (const [x, y, layout] of drawn.values()) {
      const pts = g.edge(x, y).points, mid = pts[Math.floor(pts.length / 2)];
      svg.append(h("path", {class: "edge", d: "M" + pts.map(p => p.x + " " + p.y).join(" L"), "marker-end": "url(#tip-end)"}, h("title", {}, layout)));
      if (drawn.size < 120) svg.append(h("text", {class: "small", x: mid.x + 4, y: mid.y}, layout));
    }
    for (const [id, n] of shown) {
      const at = g.node(id), vocabulary = n.group ? "module" : n.input ? "input" : (data.vocabulary || {})[n.op] || "other";
      const press = () => { if (n.group) { open.add(n.group); paint(); } else if (n.line !== undefined) { show("right", artifact, n.line); pin(artifact, n.line); } };
      const e = h("g", {class: "node " + vocabulary, tabindex: 0, role: "button", "aria-label": n.label, transform: `translate(${at.x - at.width / 2} ${at.y - at.height / 2})`, onclick: press,
        onkeydown: k => { if (k.key === "Enter") press(); }, onmouseenter: () => { if (!pinned) light(n.keys || []); }},
        h("rect", {width: at.width, height: at.height}), h("text", {x: at.width / 2, y: 17, "text-anchor": "middle"}, n.label), h("text", {class: "small", x: at.width / 2, y: 32, "text-anchor": "middle"}, n.second),
        h("title", {}, n.group ? "open " + n.group : `${n.id}: ${n.layout} (${vocabulary === "core" ? "Core ATen" : vocabulary})`));
      e.keys = n.keys;
      svg.append(e);
    }
    host.replaceChildren(svg);
    const total = Object.values(params).reduce((a, b) => a + b, 0);
    note.textContent = `${count([...parsed.nodes.values()].filter(n => !n.input).length, "node")}` + (total ? `, ${count(total, "parameter")}` : "") + ". Green: Core ATen; violet: primitive; grey: other; blue: a module, closed.";
  }
  const all = () => [...parsed.nodes.values()].forEach(n => (n.module ? n.module.split(".") : []).forEach((_, i, p) => open.add(p.slice(0, i + 1).join("."))));
  put("modelbody", h("p", {}, select, " ", h("button", {type: "button", onclick: () => { all(); paint(); }}, "open all modules"), h("button", {type: "button", onclick: () => { open.clear(); paint(); }}, "close all")), note, host);
  start();
}

// ---- sequence, reference, search

function drawSequence() {
  const events = (data.device_events || []), waits = run && run.facts.waits || [];
  if (!events.length && !waits.length) {
    put("sequencebody", none(run ? "Nothing ran on a GPU in this run. On a CPU there is no queue: each call returns when its work is done, so the timeline above is the sequence." : "Give a script that uses a GPU: launches, copies and waits stand here in order."));
    return;
  }
  put("sequencebody", waits.length ? [h("h3", {}, "Where the host waited for the device"), table([["line"], ["asked by"], ["times", 1], ["waited", 1]], waits.map(w => [placeButton(w.line), w.what, String(w.count), ns(w.ns)]))] : null,
    events.length ? [h("h3", {}, "What the host launched, in order"), table([["at", 1], ["host does"], ["what"], ["line"], ["took on the host", 1]], events.map(e => [ns(e.at), e.kind, e.name, placeButton(e.where || ""), ns(e.ns)]))] : null,
    data.device_left_out ? h("p", {class: "dim"}, `${data.device_left_out} launches in the middle are left out`) : null,
    gpuOrder(data.device_work || []), run.facts.gpu_times ? h("p", {class: "dim"}, gpuTimes(run.facts.gpu_times)) : null);
}
function drawReference() {
  const list = items => h("ul", {}, items.map(t => h("li", {}, t)));
  const when = s => doc.dimensions.map(d => s.when[d.id] ? s.when[d.id].map(v => d.options.find(o => o.value === v).phrase).join(" or ") : null).filter(Boolean).join(", on ") || "always";
  put("referencebody", h("p", {}, doc.about),
    h("h3", {}, "Every step"), table([["from"], ["step"], ["to"], ["when"], ["what happens"], ["source"]], doc.steps.map(s => [stageById[s.from].name, s.label, stageById[s.to].name, when(s), s.summary, sourcesOf(s)])),
    h("h3", {}, "Where Python ends"), h("p", {}, `The last stage in which Python code is executed: ${doc.python_ends.map(id => stageById[id].name).join(", ")}. Everything after it is native code, or text on its way to becoming it.`),
    h("h3", {}, "What this covers"), list(doc.scope), h("h3", {}, "What this page does not show"), list(doc.not_shown),
    h("h3", {}, "How it is checked"), h("p", {}, `Content version ${doc.version}, verified on ${doc.verified_on} against ${doc.verified_against}. Tests assert the number of stages and steps of each path, that no step or stage is without a source, and that every id exists.`),
    h("h3", {}, "Sources"), h("ul", {}, Object.values(doc.sources).map(s => h("li", {}, h("a", {href: s.url, rel: "noreferrer"}, s.title), `, checked ${s.checked}`))));
}
function search(words) {
  const box = $("found");
  box.hidden = !words;
  if (!words) return;
  const low = words.toLowerCase(), hits = [];
  for (const s of doc.stages) if ((s.name + s.summary + s.explanation).toLowerCase().includes(low)) hits.push(h("li", {}, h("button", {type: "button", onclick: () => openStage(s.id)}, "stage " + s.name), s.summary));
  let lines = 0;
  for (const a of artifacts) for (let i = 0; i < a.lines.length && lines < 200; i++) if (a.lines[i].toLowerCase().includes(low)) {
    lines++;
    hits.push(h("li", {}, h("button", {type: "button", title: a.group, onclick: () => { show("right", a, i); pin(a, i); $("views").scrollIntoView(); }}, `${a.title}:${i + 1}`), h("span", {class: "mono"}, a.lines[i].trim().slice(0, 160))));
  }
  box.replaceChildren(h("h2", {}, count(hits.length, "hit") + (lines >= 200 ? ", the first ones" : "")), hits.length ? h("ul", {}, hits.slice(0, 120)) : none("Nothing has it."));
}

function drawHead() {
  const others = run && run.vendor !== "Rushlight";
  const title = run ? run.program + (others ? ` (${run.vendor})` : "") : "From a line of model code to the hardware";
  $("title").textContent = title;
  document.title = title + " - Rushlight";
  $("facts").textContent = run ? ["torch", "rushlight", "python", "isa", "threads"].filter(k => run.facts[k]).map(k => `${k} ${run.facts[k]}`).join(", ") : doc.about;
  if (run && run.error) { $("error").hidden = false; $("error").textContent = `The program stopped with ${run.error}; this is its path up to there.`; }
  const parts = [...(run ? [["short", "In short"]] : []), ["path", "Path"], ["stages", "Stages"], ["views", "Line by line"], ["why", "Why"], ["time", "Time"], ["model", "Model graph"], ["sequence", "Sequence"], ["reference", "Documented"]];
  put("nav", parts.map(([id, text]) => h("a", {href: "#" + id}, text)));
  let wait = 0;
  $("search").addEventListener("input", e => { clearTimeout(wait); wait = setTimeout(() => search(e.target.value.trim()), 120); });
  document.addEventListener("keydown", e => {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (e.key === "/" && !typing) { e.preventDefault(); $("search").focus(); }
    if (e.key === "Escape" && document.activeElement === $("search")) { $("search").value = ""; search(""); }
  });
}

readArtifacts();
markSources();
drawHead();
drawShort();
drawSelectors();
drawPath();
drawViews();
drawWhy();
drawTime();
drawSequence();
drawReference();
// Laying out a large graph takes a while: after the rest is there to be read.
requestAnimationFrame(() => setTimeout(() => { drawModel(); document.body.dataset.ready = "yes"; }, 0));
