// Line by line: the texts that the stages left, the keys that link their lines, the two panes.
// What is pointed at is a target: keys ("L|file:line", "V|capture|variable") and, where it is a kernel,
// the kernel, whose own lines then light up. Only a pointer that moved lights anything: what comes to
// lie under a still one was not pointed at.

// ---- artifacts, their keys, and the index from key to lines

const PARENTS = data.parents || {};
function within(stage) { while (PARENTS[stage]) stage = PARENTS[stage]; return stage; }
const artifacts = [], index = new Map(), codeOf = new Map();  // key -> [artifact, line]; kernel -> artifacts

function addArtifact(a) {
  a.lines = a.text.replace(/\n$/, "").split("\n");
  a.number = artifacts.length;
  artifacts.push(a);
  a.keys = a.lines.map((_, i) => [...new Set(keysOf(a, i + 1))]);
  a.keys.forEach((keys, i) => keys.forEach(k => {
    if (!index.has(k)) index.set(k, []);
    index.get(k).push([a, i]);
  }));
  for (const [from, to, name] of a.spans || []) for (const kernel of sharing(a, name)) {
    if (!codeOf.has(kernel)) codeOf.set(kernel, new Map());
    const spans = codeOf.get(kernel);
    if (!spans.has(a)) spans.set(a, []);
    spans.get(a).push([from - 1, to - 1]);
  }
}
const kernelId = (graph, name) => `${graph || ""}|${name}`;
// The kernels of a function: two steps that need the same code have one.
function sharing(a, name) {
  const symbol = (a.symbols || {})[name];
  const names = symbol ? Object.keys(a.symbols).filter(k => a.symbols[k] === symbol) : [name];
  return names.map(n => kernelId(a.graph, n));
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
    for (const a of withoutRepeats(c.artifacts)) addArtifact({...a, text: shortNames(a.text, c.files), group, unit: c.unit, fates: a.stage === "fx_graph" && !a.text.includes("ops.") ? c.eliminated : null, title: `${stageWord(a.stage)}: ${a.title}`});
    for (const g of c.graphs) {
      const stepKeys = {};
      for (const s of g.steps) stepKeys[s.name] = stepKeysOf(c, s);
      for (const a of g.artifacts.map(x => ofGpuOnly(x, g, stepKeys))) addArtifact({...a, group: `Graph ${g.label}`, unit: c.unit, graph: g.label, symbols: g.symbols, stepKeys, title: `${stageWord(a.stage)}: ${a.title}`});
    }
  }
  $("also").classList.toggle("tall", artifacts.some(a => ON_GPU.has(a.stage)));
  for (const k of data.kernels || []) for (const v of k.views) {
    const stepKeys = {[k.key]: k.lines.map(l => "L|" + l)};
    addArtifact({group: `Kernel ${k.key}`, title: `${v.title} (${k.key})`, stage: "aten_cpu", language: v.language, text: v.text, kernel: k.key, stepKeys, spans: [[1, v.text.split("\n").length, k.key]], origins: v.origins});
  }
}
// A kernel that only the GPU's path has (what the CPU leaves to a library, say) is no step of the run:
// each text of it is linked to the user's lines that its Triton source names.
function ofGpuOnly(a, g, stepKeys) {
  if (!ON_GPU.has(a.stage) || a.spans.length) return a;
  const source = g.artifacts.find(x => x.stage === "triton_kernels" && x.title === a.title), name = a.title.split(",")[0];
  const lines = source ? Object.values(source.origins).map(chain => chain[0]).filter(l => /^[^\s>]+:\d+$/.test(l || "")) : [];
  stepKeys[name] = [...new Set(lines.map(l => "L|" + l))];
  return {...a, spans: [[1, a.text.split("\n").length, name]]};
}
const ON_GPU = new Set(["triton_kernels", "ttir", "ttgir", "llvm_ir", "ptx", "gpu_machine_code"]);
// A pass that changed nothing leaves its name only; of which graph a pass was is told by its `def`.
function withoutRepeats(list) {
  const kept = [], body = text => text.replace(/^#.*\n/gm, "");
  for (const a of list) {
    if (a.stage !== "inductor" || a.language !== "graph") { kept.push(a); continue; }
    const before = kept.find(k => k.of && k.of === body(a.text));
    if (before) before.title = before.title.replace(/ \(/, `, ${a.title} (`);
    else kept.push({...a, of: body(a.text), title: `${a.title} (${(/^def (\w+)/m.exec(a.text) || ["", "graph"])[1]})`});
  }
  return kept;
}
const shortNames = (text, files) => Object.entries(files || {}).reduce((t, [name, path]) => path && path !== name ? t.replaceAll(path, name) : t, text);
const stepKeysOf = (c, s) => [...s.lines.map(l => "L|" + l), ...s.makes.map(m => `V|${c.unit}|${m}`)];
const stageWord = id => (data.stage_names || {})[id] || id.replaceAll("_", " ");

function artifactButton(a, text) {
  return h("button", {type: "button", title: a.group, onclick: () => { show("right", a); $("views").scrollIntoView(); }}, text || a.title);
}

// ---- targets

function targetOf(a, i) {
  const span = a.language === "asm" && (a.spans || []).find(s => i + 1 >= s[0] && i + 1 <= s[1]);
  return {a, i, keys: a.keys[i], kernel: span ? kernelId(a.graph, span[2]) : null, name: span ? span[2] : ""};
}
// Rows of an artifact that belong to a target: a kernel's own where the artifact has its code, what
// makes its variables in a graph, its lines in the user's source.
function rowsOf(target, a) {
  const own = target.kernel && (codeOf.get(target.kernel) || new Map()).get(a);
  if (own) return own.flatMap(([from, to]) => Array.from({length: to - from + 1}, (_, n) => from + n)).filter(i => i < a.lines.length);
  if (target.kernel && a.graph && !target.kernel.startsWith(a.graph + "|")) return [];
  if (target.kernel && a.spans && a.spans.length) return [];
  const matching = kind => { const want = new Set(target.keys.filter(k => k.startsWith(kind))); return want.size ? a.keys.flatMap((keys, i) => keys.some(k => want.has(k)) ? [i] : []) : []; };
  const made = target.kernel && !a.user ? matching("V|") : [];
  return made.length ? made : matching("");
}
function related(target) {  // every artifact with rows of it
  const found = new Set(target.kernel ? (codeOf.get(target.kernel) || new Map()).keys() : []);
  for (const k of target.keys) for (const [a] of index.get(k) || []) if (!found.has(a) && (!target.kernel || rowsOf(target, a).length)) found.add(a);
  return [...found];
}

// ---- the two panes

const WRAPPED = 800;  // characters: shorter lines of the source are wrapped, longer ones scroll
const panes = {left: null, right: null};
let pinned = null;

function show(side, a, line) {
  panes[side] = a;
  const host = $(side), select = h("select", {"aria-label": side + " view", onchange: e => show(side, artifacts[+e.target.value])});
  const groups = new Map();
  for (const x of artifacts) { if (!groups.has(x.group)) groups.set(x.group, []); groups.get(x.group).push(x); }
  for (const [name, list] of groups) select.append(h("optgroup", {label: name}, list.map(x => h("option", {value: x.number, selected: x === a}, x.title))));
  const code = h("div", {class: "code", tabindex: 0, role: "region", "aria-label": a.title,
    onmousemove: e => { const row = e.target.closest(".line"); if (moved(e) && row && !pinned) point(targetOf(a, +row.dataset.i)); },
    onclick: e => { const row = e.target.closest(".line"); if (row) pin(a, +row.dataset.i); },
    onkeydown: e => walk(e, a, code)});
  code.append(...a.lines.map((text, i) => h("div", {class: "line" + (a.user && text.length < WRAPPED ? " wrapped" : "") + (linked(a, i) ? " linked" : "") + (a.marks && a.marks.has(i) ? " " + [...a.marks.get(i)].join(" ") : ""), "data-i": i, title: originText(a, i)}, h("span", {class: "no"}, String(i + 1)), a.user ? marksOf(a, i) : null, h("span", {}, text || " "))));
  host.replaceChildren(select, h("div", {class: "group dim"}, a.user ? a.path || "" : a.group), code);
  if (pinned) light(pinned, true);
  const lit = line !== undefined ? line : pinned ? rowsOf(pinned, a)[0] : undefined;
  if (lit !== undefined) reveal(side, lit);
  remember();
}
// The browser tells of a pointer also when only the page under it moved.
let pointer = "";
function moved(e) { const at = `${e.screenX},${e.screenY}`, is = at !== pointer; pointer = at; return is; }
document.addEventListener("mousedown", moved, true);

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
    if (!pinned) point(targetOf(a, next));
  } else if (e.key === "Enter" && code.dataset.at !== undefined) pin(a, +code.dataset.at);
}
function pin(a, i) {
  const same = pinned && pinned.a === a && pinned.i === i;
  if (same || !a.keys[i].length) return release();
  keep(targetOf(a, i), panes.left === a ? "left" : "right");
}
function release() { pinned = null; light({keys: []}); remember(); }

// Lights a target until it is released. `from`: the pane that it was chosen in, which stays.
function keep(target, from) {
  pinned = target;
  for (const side of ["left", "right"]) if (side !== from) {
    const stays = panes[side] && rowsOf(target, panes[side]).length && reached(target, panes[side]);
    const other = stays ? panes[side] : substitute(target, side);
    if (other && other !== panes[side]) show(side, other);
  }
  light(target, true);
  remember();
  for (const side of ["left", "right"]) {
    const first = side === from || !panes[side] ? undefined : rowsOf(target, panes[side])[0];
    if (first !== undefined) reveal(side, first);
  }
}
// What a pane shows instead, where its text has nothing of the target: the like of it, or the next best.
function substitute(target, side) {
  const all = related(target).filter(a => a !== panes[side === "left" ? "right" : "left"] && rowsOf(target, a).length);
  const found = all.some(a => reached(target, a)) ? all.filter(a => reached(target, a)).sort((a, b) => brokeAt(target, b) - brokeAt(target, a)) : all;
  const like = panes[side], source = found.find(a => a.user);
  if (side === "left" && source) return source;
  return found.find(a => like && a.stage === like.stage && a.language === like.language) || found.find(a => a.stage === "fx_graph")
    || found.find(a => a.language === "cpp") || found.find(a => !a.user) || found[0];
}
// Bytecode lists the whole function: whether its capture came to these instructions, and ended there.
const CAME = /^.{5} [>*]/;  // taken along; the graph broke
const reached = (target, a) => a.language !== "bytecode" || rowsOf(target, a).some(i => CAME.test(a.lines[i]));
function brokeAt(target, a) {
  const c = run.captures.find(x => x.unit === a.unit);
  return !!c && c.breaks.some(b => [b.where, ...b.via || []].some(w => { const at = placeOf(w); return at && target.keys.includes(`L|${at[0].user}:${at[1] + 1}`); }));
}
// A kernel's code on the right, its lines on the left.
function showKernel(a, name, keys) {
  const target = {a, i: -1, keys, kernel: kernelId(a.graph, name), name};
  pinned = target;
  show("right", a);
  keep(target, "right");
  const first = rowsOf(target, a)[0];
  if (first !== undefined) $("right").querySelector(".code").scrollTop = rowOf("right", first).offsetTop;
  $("views").scrollIntoView();
}

function point(target) { light(target, false); }
function light(target, kept) {
  const want = new Set(target.keys);
  for (const side of ["left", "right"]) {
    const a = panes[side];
    if (!a) continue;
    $(side).querySelectorAll(".line.lit, .line.pin").forEach(r => r.classList.remove("lit", "pin"));
    const rows = $(side).querySelector(".code").children;
    if (want.size || target.kernel) rowsOf(target, a).forEach(i => rows[i].classList.add(kept ? "pin" : "lit"));
    $(side).classList.toggle("code-of-kernel", !!target.kernel && !a.user);
  }
  document.querySelectorAll(".node").forEach(n => n.classList.toggle("lit", !!n.keys && n.keys.some(k => want.has(k))));
  drawAlso(target, kept);
}

// The row of buttons: one a kind of text, so that it needs no more than its place; the others of a kind
// are in its menu.
function drawAlso(target, kept) {
  const lines = target.keys.filter(k => k.startsWith("L|")).map(k => k.slice(2)), kinds = new Map();
  for (const a of target.keys.length || target.kernel ? related(target) : []) if (a !== panes.left && a !== panes.right) {
    const kind = kindOf(a);
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push(a);
  }
  const near = panes.right && panes.right.unit;
  put("also", target.name || lines.length ? h("b", {}, target.name || shortList(lines)) : null, " ", [...kinds].map(([kind, list]) => {
    const best = list.find(a => a.unit === near) || list[0];
    return [h("button", {type: "button", title: `${best.title}, ${best.group}`, onclick: () => show("right", best)}, kind),
      list.length > 1 ? h("button", {type: "button", class: "more", "aria-haspopup": "true", title: `all ${list.length} of them`, onclick: e => openMenu(e.currentTarget, list)}, `${list.length}\u25be`) : null];
  }), kept && target.a && fate(target.a, target.i) ? h("span", {class: "dim"}, "No kernel is behind this node: " + fate(target.a, target.i)) : null);
}
const shortList = lines => lines.slice(0, 3).join(", ") + (lines.length > 3 ? ` and ${lines.length - 3} more` : "");
const LANGUAGES = {cpp: "C++", asm: "machine code", sass: "machine code", ptx: "PTX"};
const TEXTS = {dynamo: "bytecode", fx_graph: "captured graph", forward_graph: "forward graph", backward_graph: "backward graph",
  decomposition: "decomposed graph", inductor: "graph before fusion", memory_plan: "memory plan"};
const kindOf = a => a.user ? "your source" : a.kernel ? `its ${LANGUAGES[a.language] || "declaration and loops"}` : LANGUAGES[a.language] || TEXTS[a.stage] || stageWord(a.stage);

function openMenu(button, list, after) {
  const box = $("menu"), at = button.getBoundingClientRect();
  box.replaceChildren(...list.map(a => h("button", {type: "button", onclick: () => { closeMenu(); show("right", a); if (after) after(); }}, a.title, " ", h("span", {class: "dim"}, a.group))));
  box.hidden = false;
  box.style.left = Math.max(8, Math.min(at.left, window.innerWidth - box.offsetWidth - 8)) + "px";
  box.style.top = Math.min(at.bottom + 2, window.innerHeight - box.offsetHeight - 8) + "px";
  box.opener = button;
  box.firstChild.focus();
}
function closeMenu() {
  const box = $("menu");
  if (box.hidden) return false;
  box.hidden = true;
  if (box.opener && box.opener.isConnected) box.opener.focus();
  return true;
}
document.addEventListener("click", e => { if (!e.target.closest("#menu, .more")) closeMenu(); });

function drawViews() {
  if (!artifacts.length) { put("views", h("h2", {}, "Line by line"), none("Give a script: its source, graphs and generated code stand here, linked by line.")); return; }
  const pick = test => artifacts.find(test);
  show("left", pick(a => a.stage === "python_code") || artifacts[0]);
  show("right", pick(a => a.stage === "fx_graph") || pick(a => a.language === "cpp") || artifacts[artifacts.length - 1]);
}
