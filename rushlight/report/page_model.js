// The model as a graph: modules that open and close, laid out by dagre.

// A line of a graph that makes a value: `name: layout = operator(operands)`, or in torch's own graphs
// an expression of Python, `a + b`, `-a`, `a[0]`.
const INFIX = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_divide", "%": "remainder", "**": "pow", "@": "matmul", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"};
function pieces(line) {  // [name, layout, operator, text of the operands], or null
  const called = PIECES.exec(line);
  if (called) {
    const [, id, layout, op, args] = called, method = /^([A-Za-z_]\w*)\.(\w+)$/.exec(op);  // x.view(...)
    return method && method[1] !== "torch" && method[1] !== "operator" ? [id, layout, method[2], `${method[1]}, ${args}`] : [id, layout, op, args];
  }
  const made = EXPRESSION.exec(line);
  if (!made) return null;
  const [, id, layout, text] = made, infix = /^[\w.]+ (\/\/|\*\*|==|!=|<=|>=|<<|>>|[-+*\/%@<>&|^]) [\w.]+$/.exec(text);
  if (infix) return [id, layout, INFIX[infix[1]], text];
  if (/^\w+\[.*\]$/.test(text)) return [id, layout, "getitem", text];
  if (/^[-~]\w+$/.test(text)) return [id, layout, text[0] === "-" ? "neg" : "invert", text];
  return null;
}
const EXPRESSION = /^\s+(\w+)(?:: "?([^"=]+?)"?)? = ([^=;#].*?)\s*(?:;.*)?(?:#.*)?$/;
const PIECES = /^\s+(\w+)(?:: "?([^"=]+?)"?)? = (?:ops\.|_)?([\w.]+)\((.*?)\)\s*(?:;.*)?(?:#.*)?$/;
function parseGraph(a, c) {
  const nodes = new Map(), edges = [];
  const first = a.lines.findIndex(l => /^\s*def /.test(l)), last = a.lines.findIndex((l, i) => i >= first && /\).*:\s*$/.test(l));
  const head = first < 0 ? "" : a.lines.slice(first, last + 1).join(" ");  // over several lines where it is long
  for (const m of head.matchAll(/(\w+): "?([a-z]+\d*\[[^\]]*\])/g)) nodes.set(m[1], {id: m[1], op: "input", layout: m[2], input: true, module: "", keys: []});
  const names = Object.create(null);  // another name of an input -> its name
  const captured = !a.lines.some(l => l.includes("= ops."));  // others name their nodes anew: there names say less
  const moduleOf = (id, op, from) => {  // a part of several results is where these were made
    const known = c.modules[id], of = op === "getitem" && from.length ? nodes.get(from[0]) : null;
    if (of && !of.input && !known) return of.module;
    const owned = captured && known ? undefined : from.map(n => ownerOf(n)).find(Boolean);
    return owned || modulePath((known || c.modules[id.replace(/_\d+$/, "")] || [""])[0]);
  };
  a.lines.forEach((line, i) => {
    const m = pieces(line), same = m ? null : /^\s+(\w+) = (\w+)$/.exec(line);
    if (same) names[same[1]] = same[2];
    if (!m) return;
    const [id, layout, op, args] = m;
    const from = [...new Set((args.match(/[A-Za-z_]\w*/g) || []).map(n => names[n] || n))].filter(n => nodes.has(n) && n !== id);
    nodes.set(id, {id, op, layout: (layout || "").replace(/\]\[[^\]]*\]\w*$/, "]"), module: moduleOf(id, op, from), keys: a.keys[i], line: i, className: (c.modules[id] || [])[1]});
    for (const name of from) edges.push([name, id]);
  });
  for (const n of nodes.values()) if (n.input) { const p = paramModule(n.id); n.parameter = p !== null; n.op = inputName(n.id); if (n.parameter || ownerOf(n.id)) { const user = edges.find(e => e[0] === n.id); n.module = (user && nodes.get(user[1]).module) || ownerOf(n.id); } }
  if (run.vendor !== "Rushlight") placeByParameters(nodes, edges);
  return {nodes, edges};
}
// torch's graphs do not say which module an operator is of. One that reads a module's parameters is
// its; others stand in the innermost module that holds what they read and what reads them.
function placeByParameters(nodes, edges) {
  const into = new Map(), out = new Map();
  for (const [a, b] of edges) for (const [map, at, other] of [[into, b, a], [out, a, b]]) { if (!map.has(at)) map.set(at, []); map.get(at).push(nodes.get(other)); }
  for (const n of nodes.values()) {
    const own = (into.get(n.id) || []).find(p => p.parameter && p.module);
    if (!n.input && !n.module && own) n.module = own.module;
  }
  const shared = (a, b) => { const x = a.split("."), y = b.split("."); let i = 0; while (i < x.length && x[i] === y[i]) i++; return x.slice(0, i).join("."); };
  const near = (n, map, list) => (map.get(n.id) || []).filter(x => !x.input).map(x => list(x)).filter(m => m !== null);
  const before = new Map(), after = new Map(), order = [...nodes.values()].filter(n => !n.input);
  for (const n of order) { const seen = near(n, into, x => x.module || before.get(x.id) || null); before.set(n.id, seen.length ? seen[seen.length - 1] : null); }
  for (const n of order.reverse()) { const seen = near(n, out, x => x.module || after.get(x.id) || null); after.set(n.id, seen.length ? seen[0] : null); }
  for (const n of order) if (!n.module && before.get(n.id) && after.get(n.id)) n.module = shared(before.get(n.id), after.get(n.id));
}
const modulePath = source => [...source.matchAll(/_modules\['([^']+)'\]|_modules\["([^"]+)"\]/g)].map(m => m[1] || m[2]).join(".");
const paramModule = id => { if (/^L_self_\w*_parameters_\w+_$/.test(id)) return ""; const t = /_modules_(\w+)_parameters_\w+_$/.exec(id); if (t && !id.includes("__")) return t[1].split("_modules_").join("."); const m = /^(.*?)_*parameters__(\w+)$/.exec(id); return m ? [...m[1].matchAll(/modules__(\w+?)(?=____|__$|$)/g)].map(x => x[1]).join(".") : null; };
// The module that a parameter or a buffer belongs to, and an input's name as the user would say it.
const ownerOf = id => paramModule(id) || paramModule(id.replace(/_buffers_(?=_*\w)/, "_parameters_"));
const inputName = id => id.replace(/^.*_(?:buffers|parameters)_+(?=\w)/, "").replace(/^[Ll]_(\w+)_$/, "$1").replace(/_+$/, "") || id;
const size = layout => { const m = /\[([^\]]*)\]/.exec(layout); return m && m[1] ? m[1].split(",").reduce((p, n) => p * (parseInt(n) || 1), 1) : 1; };

// The order of the captured graphs: a row begins where the first function was captured again.
function order(choose) {
  if (run.captures.length < 2) return null;
  const rows = [];
  for (const c of run.captures) {
    if (!rows.length || c.function === rows[rows.length - 1][0].function) rows.push([]);
    rows[rows.length - 1].push(c);
  }
  const operators = c => { const a = artifacts.find(x => x.unit === c.unit && x.stage === "fx_graph" && x.language === "graph"); return a ? a.lines.filter(l => pieces(l)).length : 0; };
  const one = (c, i) => {
    const calls = operators(c), ended = c.breaks[0];
    return [i ? h("span", {class: "dim"}, "\u2192") : null,
      h("button", {type: "button", disabled: !calls, title: c.recompiles.length ? `compiled again: ${c.recompiled}` : "its first call", onclick: () => choose(c)}, c.unit, h("span", {class: "dim"}, calls ? ` ${count(calls, "operator")}` : " no operators")),
      ended ? h("span", {class: "bad", title: `${ended.what}: ${ended.why}`}, "breaks at ", placeButton(ended.where.split("\n")[0])) : null];
  };
  return h("details", {open: rows.flat().length < 9}, h("summary", {}, h("b", {}, "In what order"), `${count(run.captures.length, "capture")}; each ends where its function does or the graph broke`),
    rows.map(row => h("div", {class: "order"}, row[0].recompiles.length ? h("span", {class: "dim"}, `again, ${row[0].recompiled}: `) : null, row.map(one))));
}

const FRAMED = 500;  // nodes that are laid out inside frames
const many = n => n < 1e4 ? n.toLocaleString("en") : n < 1e6 ? three(n / 1e3) + " thousand" : three(n / 1e6) + " million";
function drawModel() {
  const choices = [];
  for (const c of run ? run.captures : []) for (const a of artifacts) if (a.unit === c.unit && a.language === "graph" && a.stage !== "inductor") choices.push([c, a]);
  if (!choices.length) { put("modelbody", none(run ? "No graph was captured: eager mode calls one operator at a time." : "Give a script: its captured graph stands here.")); return; }
  const host = h("div", {class: "graph"}), open = new Set();
  let [capture, artifact] = choices[0], parsed = null, fit = true;
  const note = h("p", {class: "dim"}), about = h("p", {class: "about"});
  const select = h("select", {"aria-label": "which graph", onchange: e => { [capture, artifact] = choices[+e.target.value]; start(); }}, choices.map(([c, a], i) => h("option", {value: i}, `${c.unit}: ${a.title}`)));
  function choose(c) { const i = choices.findIndex(x => x[0] === c); if (i >= 0) { select.value = i; [capture, artifact] = choices[i]; start(); } }
  function start() {
    parsed = parseGraph(artifact, capture);
    open.clear();
    about.replaceChildren();
    const shallow = new Set([...parsed.nodes.values()].map(n => n.module).filter(Boolean));
    if (parsed.nodes.size <= 40) shallow.forEach(m => m.split(".").forEach((_, i, all) => open.add(all.slice(0, i + 1).join("."))));
    paint();
  }
  const pathOf = n => (n.module ? n.module.split(".") : []).map((_, i, all) => all.slice(0, i + 1).join("."));
  function owner(n) {  // the outermost closed module that holds the node, or the node
    const closed = pathOf(n).find(m => !open.has(m));
    return closed ? "module " + closed : n.id;
  }
  function close(m) { for (const o of [...open]) if (o === m || o.startsWith(m + ".")) open.delete(o); paint(m); }
  function paint(focus) {  // `focus`: the module that was opened or closed
    const shown = new Map(), inside = {}, params = {};
    for (const n of parsed.nodes.values()) {
      if (n.parameter) { params[owner(n)] = (params[owner(n)] || 0) + size(n.layout); continue; }
      const o = owner(n);
      if (o.startsWith("module ")) { inside[o] = (inside[o] || 0) + 1; if (!shown.has(o)) shown.set(o, {id: o, group: o.slice(7), keys: []}); shown.get(o).keys.push(...n.keys); } else shown.set(o, n);
    }
    if (shown.size > 700) { host.replaceChildren(none(`${shown.size} nodes are open: close some modules.`)); return; }
    const g = new dagre.graphlib.Graph({multigraph: false, compound: true}).setGraph({rankdir: "TB", nodesep: 18, ranksep: 34, edgesep: 8}).setDefaultEdgeLabel(() => ({}));
    for (const [id, n] of shown) {
      const label = n.group ? n.group.replace(/^.*\.(?=[^.]*[A-Za-z])/, "") : n.op, second = n.group ? [count(inside[id], "operator"), params[id] ? `${many(params[id])} parameter${params[id] === 1 ? "" : "s"}` : ""].filter(Boolean).join(", ") : n.layout.replace(/\.strides.*$/, "");
      n.label = label; n.second = !n.group && second.length > 34 ? second.slice(0, 33) + "\u2026" : second;
      g.setNode(id, {width: Math.max(80, 7.6 * Math.max(label.length, n.second.length * .8) + 16), height: 40});
    }
    const frames = new Map();  // open module -> the frame around what is in it
    for (const [id, n] of shown) {
      const around = (n.group ? pathOf({module: n.group}).slice(0, -1) : pathOf(n)).filter(m => open.has(m));
      around.forEach((m, i) => { if (!frames.has(m)) { frames.set(m, "frame " + m); g.setNode("frame " + m, {}); if (i) g.setParent("frame " + m, "frame " + around[i - 1]); } });
      if (around.length && shown.size <= FRAMED) g.setParent(id, "frame " + around[around.length - 1]);
    }
    if (shown.size > FRAMED) { for (const f of frames.values()) g.removeNode(f); frames.clear(); }  // too many to lay out in frames
    const drawn = new Map();
    for (const [a, b] of parsed.edges) {
      const from = parsed.nodes.get(a), x = owner(from), y = owner(parsed.nodes.get(b));
      if (from.parameter || x === y || !shown.has(x) || !shown.has(y)) continue;
      drawn.set(x + "\n" + y, [x, y, from.layout.replace(/\.strides.*$/, "")]);  // strides: in the node's own title
    }
    for (const [x, y] of drawn.values()) g.setEdge(x, y);
    dagre.layout(g);
    const {width, height} = g.graph(), bends = [...drawn.values()].flatMap(([x, y]) => g.edge(x, y).points.map(p => p.x)), left = Math.min(0, ...bends);  // around frames, lines leave the nodes' width
    const w = Math.max(width || 100, ...bends) - left + 110, hh = (height || 60) + 34, wide = Math.max(300, host.clientWidth - 4);
    const scale = fit ? Math.max(.45, Math.min(1, wide / w)) : 1;
    const svg = h("svg", {width: w * scale, height: hh * scale, viewBox: `${left - 12} -22 ${w} ${hh}`, role: "img", "aria-label": artifact.title});
    for (const [m, id] of [...frames].sort((a, b) => a[0].length - b[0].length)) {
      const at = g.node(id);
      if (!at || !at.width) continue;
      const x = at.x - at.width / 2, y = at.y - at.height / 2, shut = () => close(m);
      const frame = h("g", {class: "frame", tabindex: -1, role: "button", "aria-label": `close ${m}`, "data-of": m, onclick: shut, onkeydown: k => walkNodes(k, frame, shut)}, h("rect", {x, y, width: at.width, height: at.height}), h("text", {class: "small", x: x + 6, y: y + 12}, `${m.replace(/^.*\.(?=[^.]*[A-Za-z])/, "")} \u2212`), h("title", {}, `close ${m}`));
      svg.append(frame);
    }
    const lines = new Map();  // node -> what is drawn of its edges
    const drawnOf = (id, e) => { if (!lines.has(id)) lines.set(id, []); lines.get(id).push(e); };
    for (const [x, y, layout] of drawn.values()) {
      const pts = g.edge(x, y).points, mid = pts[Math.floor(pts.length / 2)];
      const line = h("path", {class: "edge", d: "M" + pts.map(p => p.x + " " + p.y).join(" L"), "marker-end": "url(#tip-end)"}, h("title", {}, layout));
      const text = h("text", {class: "small onedge" + (drawn.size < 120 ? "" : " far"), x: mid.x + 4, y: mid.y}, layout);  // of many edges: those of the node that is pointed at
      svg.append(line, text);
      for (const end of [x, y]) drawnOf(end, text);
    }
    let first = true;
    for (const [id, n] of shown) {
      const at = g.node(id), vocabulary = n.group ? "module" : n.input ? "input" : (data.vocabulary || {})[n.op] || "other";
      const near = on => (lines.get(id) || []).forEach(t => t.classList.toggle("near", on));
      const press = () => { if (n.group) { open.add(n.group); paint(n.group); } else { tell(n, vocabulary); if (n.line !== undefined) { show("right", artifact, n.line); pin(artifact, n.line); } } };
      const e = h("g", {class: "node " + vocabulary, tabindex: first ? 0 : -1, role: "button", "aria-label": n.label, "data-of": n.group || id, transform: `translate(${at.x - at.width / 2} ${at.y - at.height / 2})`, onclick: press,
        onkeydown: k => walkNodes(k, e, press), onmouseenter: () => { near(true); if (!pinned) point({keys: n.keys || []}); }, onmouseleave: () => near(false), onfocus: () => near(true), onblur: () => near(false)},
        h("rect", {width: at.width, height: at.height}), h("text", {x: at.width / 2, y: 17, "text-anchor": "middle"}, n.label), h("text", {class: "small", x: at.width / 2, y: 32, "text-anchor": "middle"}, n.second),
        h("title", {}, n.group ? "open " + n.group : `${n.id}: ${n.layout} (${vocabulary === "core" ? "Core ATen" : vocabulary})`));
      first = false;
      e.keys = n.keys;
      svg.append(e);
    }
    host.replaceChildren(svg);
    const kept = focus === undefined ? null : [...svg.querySelectorAll(".node, .frame")].find(e => e.dataset.of === focus);
    if (kept) { svg.querySelectorAll(".node[tabindex='0']").forEach(e => e.setAttribute("tabindex", -1)); kept.setAttribute("tabindex", 0); kept.focus({preventScroll: true}); }
    const total = Object.values(params).reduce((a, b) => a + b, 0);
    note.textContent = `${count([...parsed.nodes.values()].filter(n => !n.input).length, "node")}` + (total ? `, ${count(total, "parameter")}` : "") + ". Green: Core ATen; violet: primitive; grey: other; blue: a module, closed (a click opens it; a click on the frame of an open one closes it; arrow keys walk, Enter opens and closes)." + (shown.size > FRAMED ? " Of so many open nodes the modules have no frames." : "");
  }
  function tell(n, vocabulary) {  // the node that was chosen: where it comes from, with the line's text
    const chain = n.line === undefined ? [] : (artifact.origins || {})[n.line + 1] || [], place = placeOf(chain[0]);
    about.replaceChildren(...[h("b", {}, n.id), ` ${n.input ? "input" : n.op} ${n.layout} `, n.module ? h("span", {class: "dim"}, `in ${n.module} `) : "", h("span", {class: "tag"}, vocabulary === "core" ? "Core ATen" : vocabulary),
      place ? [placeButton(chain[0]), h("span", {class: "mono"}, place[0].lines[place[1]].trim())] : "", n.line !== undefined && fate(artifact, n.line) ? `; no kernel: ${fate(artifact, n.line)}` : ""].flat().filter(Boolean));
  }
  function walkNodes(k, e, press) {
    if (k.key === "Enter" || k.key === " ") { k.preventDefault(); press(); return; }
    const all = [...host.querySelectorAll(".frame, .node")], by = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[k.key], next = by && all[all.indexOf(e) + by];
    if (!next) return;
    k.preventDefault();
    e.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  }
  const all = () => [...parsed.nodes.values()].forEach(n => pathOf(n).forEach(m => open.add(m)));
  const button = (text, f) => h("button", {type: "button", onclick: f}, text);
  const size_ = h("button", {type: "button", "aria-pressed": "true", onclick: () => { fit = !fit; size_.setAttribute("aria-pressed", String(fit)); paint(); }}, "fit the width");
  put("modelbody", order(choose), h("p", {}, select, " ", button("open all modules", () => { all(); paint(); }), button("close all", () => { open.clear(); paint(); }), size_), note, about, host);
  start();
}
