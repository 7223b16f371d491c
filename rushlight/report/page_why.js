// Why: guards, recompiles, breaks, refusals.

// ---- why

function refusedTable(list) {
  const advice = list.some(r => r.hint);
  return table([["what"], [list.some(r => r.ended) ? "captures ended" : "times", 1], ["why"], ...(advice ? [["what to do"]] : []), ["where"]],
    list.map(r => [cell(r.what), cell(r.count || 1, String(r.count || 1)), cell(r.why, h("span", {title: r.id}, r.why)), ...(advice ? [r.hint] : []), cell(r.where, placeButton(r.where))]));
}
function placeOf(where) {  // "file.py:12 in f" -> [source, line from 0]; null where its file is not here
  const m = /^(.*?):(\d+)/.exec(where || ""), a = m && (artifacts.find(x => x.user === m[1]) || artifacts.find(x => x.path === m[1]));
  return a ? [a, +m[2] - 1, where.slice(m[1].length)] : null;
}
function placeButton(where, last) {  // `last`: of several lines, the last one's number
  const place = placeOf(where), more = typeof last === "string" ? last : "";
  if (!place) return /:\d/.test(where || "") ? shortPath(where).replace(/(:\d+) in .*/s, "$1") + more : where || "";
  const [a, line] = place;
  return h("button", {type: "button", class: "place", onclick: () => showLines(a, line, more ? +more.slice(1) - 1 : line)}, `${a.user}:${line + 1}${more}`);
}
function showLines(a, from, to) {
  const keys = [...new Set(a.keys.slice(from, to + 1).flat())];
  pinned = {a, i: from, keys, kernel: null, name: from === to ? "" : `${a.user}:${from + 1}-${to + 1}`};
  show("left", a, from);
  keep(pinned, "left");
  $("views").scrollIntoView();
}
const plain = what => what.replace(/_\d+(?=\b|_over)/g, "").replace(/\[\d+\]/g, "").replace(/ over \[[^\]]*\]( rows \[[^\]]*\])?/, "");
const tally = list => { const seen = new Map(); for (const r of list) { const what = plain(r.what), k = JSON.stringify([r.id, what, r.why, r.where]); if (seen.has(k)) seen.get(k).count++; else seen.set(k, {...r, what, count: 1}); } return [...seen.values()].sort((a, b) => b.count - a.count); };

// An exception that leaves functions of ours is told once: where the user's line called the first.
function distinctBreaks() {
  const all = tally(run.captures.flatMap(c => c.breaks)).map(b => ({...b, ended: true})), ours = b => !!data.package && b.where.startsWith(data.package);
  const like = (o, b) => o.id === b.id && o.what === b.what && o.why === b.why;
  return all.filter((b, i) => !ours(b) || !all.some((o, j) => like(o, b) && (!ours(o) || j < i)));  // all ours: of the outermost
}
// Captures that are compiled in parts (forward_0, forward_1, ...): [capture, parts].
function graphsOfParts() {
  return run.captures.map(c => [c, new Set(c.graphs.map(g => (/_(\d+)(_forward|_backward)?$/.exec(g.name) || [])[1]).filter(Boolean)).size]).filter(([, n]) => n > 1);
}
function adviceOn(why) {  // what can be done about a recompile; by the first thing that differed
  const first = why.split(" (another")[0];
  if (/\.(shape|size)|size mismatch|\.dim\(\)|len\(/.test(first)) return /\.dim\(\)/.test(first) ? "Call it with as many dims each time; each number of dims is compiled once." : "Nothing more happens: from now on this size may vary. torch.compile(..., dynamic=True) lets it vary from the first call on.";
  if (/\.dtype/.test(first)) return "Call it with one dtype; each is compiled once.";
  if (/requires_grad|grad_mode|is_grad_enabled|^(grad|inference) mode/.test(first)) return "Each is compiled once: with gradients and without.";
  if (/^(autocast|a mode of dispatch|the default device) was/.test(first)) return "Each is compiled once: with it and without.";
  if (/training/.test(first)) return "Each is compiled once: train() and eval().";
  if (/was -?[\d.e+]+, now -?[\d.e+]+$/.test(first)) return "Nothing more happens: from its second value on the number may vary. A tensor in its place varies from the first call on.";
  if (/was None|now None/.test(first)) return "Give it a value of one kind at every call: at the first one zeros, say, for None.";
  if (/was '|now '|is True|is False|was (True|False)/.test(first)) return "Each value is compiled once; keep such arguments few.";
  return "";
}
const adviceOnRead = w => w.host ? "Nothing: these stay on the host." : /bool/.test(w.what) ? "torch.where(condition, a, b) keeps the choice on the device." : "Add up or keep the tensor, and read it once, after the loop or every so many steps.";

function drawWhy() {
  if (!run) { put("whybody", none("Give a script: guards, recompiles, graph breaks, refused fusions and fallbacks of its run stand here.")); return; }
  const parts = [], add = (title, body) => parts.push(h("h3", {}, title), body);
  const graphs = run.captures.flatMap(c => c.graphs);
  const compiled = run.captures.length || run.functions.length;
  if (compiled) {
    add("Which lines were compiled", run.captures.length ? table([["function"], ["capture"], ["why"], ["operators"], ["lines"], ["graph broke at"]], run.captures.map(c => {
      const lines = [...new Set(c.graphs.flatMap(g => g.steps.flatMap(s => s.lines)))].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
      return [c.function, c.unit, c.recompiled || "its first call", String(c.graphs.reduce((n, g) => n + g.steps.reduce((m, s) => m + s.operators.length, 0), 0)),
        lines.flatMap(l => [placeButton(l), " "]), c.breaks.map(b => placeButton(b.where))];
    })) : none("Nothing was captured."));
    const breaks = distinctBreaks();
    add("Graph breaks", breaks.length ? refusedTable(breaks) : none(graphsOfParts().length ? "None." : "None: each capture is one graph."));
    for (const [c, n] of graphsOfParts()) parts.push(h("p", {}, h("b", {}, c.unit), ` was captured whole and is compiled in ${n} parts: around a recurrent layer or what belongs to autograd (an autograd.Function, a hook, a change of modes), which is called as it is.`));
    const changes = recompiles();
    add("Recompiles", changes.length ? table([["function"], ["what changed"], ["what to do"], ["read at"], ["times", 1]], changes.map(r => [r.what, r.why, adviceOn(r.why), placeButton(r.where), String(r.count)])) : none("None."));
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
    table([["what was read"], ["times", 1], ["took", 1], ["what to do"], ["line"]], reads.map(w => [h("span", {class: "mono"}, w.what), String(w.count), ns(w.ns), adviceOnRead(w), placeButton(w.line)])));
  const shown = /^(fusion|fallback|capture)\.|^cache\.miss/;
  const rest = run.refusals.filter(r => !compiled || !shown.test(r.id));
  if (rest.length) add("Whatever else was not done", refusedTable(rest));
  put("whybody", parts);
}
