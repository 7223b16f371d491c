// Reference, head; and the start of everything. The last of the page's files.

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
function drawHead() {
  const others = run && run.vendor !== "Rushlight";
  const title = run ? run.program + (others ? ` (${run.vendor})` : "") : "From a line of model code to the hardware";
  $("title").textContent = title;
  document.title = title + " - Rushlight";
  $("facts").textContent = run ? ["torch", "rushlight", "python", "isa", "threads"].filter(k => run.facts[k]).map(k => k === "isa" ? `kernels for x86-64-${run.facts.isa}` : k === "threads" ? count(run.facts.threads, "thread") : `${k} ${run.facts[k]}`).join(", ") : doc.about;
  if (run && run.error) { const at = run.facts.stopped_at || []; put("error", `The program stopped with ${run.error}`, at.length ? [" at ", placeButton(at[0]), at.slice(1).map(l => [", called at ", placeButton(l)])] : "", "; this is its path up to there."); $("error").hidden = false; }
  const parts = [...(run ? [["short", "In short"]] : []), ["path", "Path"], ["stages", "Stages"], ["views", "Line by line"], ["why", "Why"], ["time", "Time"], ["model", "Model graph"], ["sequence", "Sequence"], ["reference", "Documented"]].filter(([id]) => !$(id).hidden);
  put("nav", parts.map(([id, text]) => h("a", {href: "#" + id}, text)));
  startSearch();
  new ResizeObserver(belowHead).observe(document.querySelector("header"));
  document.addEventListener("keydown", e => {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (e.key === "/" && (!typing || document.activeElement.type === "radio")) { e.preventDefault(); $("search").focus(); }
    if (e.key === "Escape") escape();
  });
}

// What is jumped to stands below the head, however high that is (an error makes it higher).
function belowHead() {
  const head = document.querySelector("header"), stays = getComputedStyle(head).position === "sticky";
  document.documentElement.style.scrollPaddingTop = stays ? `${head.offsetHeight + 4}px` : "0";
}

// Escape takes back the last thing: a menu, the search, what is kept lit, the fold around the focus.
function escape() {
  const fold = document.activeElement.closest("details[open]");
  if (closeMenu()) return;
  if (!$("found").hidden || document.activeElement === $("search")) { $("search").value = ""; $("search").blur(); search(""); }
  else if (pinned) release();
  else if (fold) { fold.open = false; fold.querySelector("summary").focus(); }
}

// What was chosen stands in the address, behind the section's name, so that a reload keeps it.
let begun = false, section = "";
const atFirst = {...state};
function remember() {
  if (!begun) return;
  const parts = new URLSearchParams();
  for (const d of doc.dimensions) if (state[d.id] !== atFirst[d.id]) parts.set(d.id, state[d.id]);
  if (panes.left) parts.set("views", `${panes.left.number},${panes.right.number}`);
  if (pinned && pinned.a && pinned.i >= 0) parts.set("line", `${pinned.a.number},${pinned.i}`);
  history.replaceState(null, "", `#${section}?${parts}`);
}
function recall() {
  const [id, query] = location.hash.slice(1).split("?"), parts = new URLSearchParams(query || ""), known = (parts.get("views") || "").split(",").map(n => artifacts[n]);
  section = id;
  for (const d of doc.dimensions) if (d.options.some(o => o.value === parts.get(d.id))) state[d.id] = parts.get(d.id);
  return () => {
    if (known[0] && known[1]) { show("left", known[0]); show("right", known[1]); }
    const [a, i] = (parts.get("line") || "").split(",");
    if (artifacts[a] && artifacts[a].lines[i] !== undefined) pin(artifacts[a], +i);
    if (query !== undefined && $(id)) $(id).scrollIntoView();
    begun = true;
  };
}
document.addEventListener("click", e => {
  const link = e.target.closest("a[href^='#']"), to = link && $(link.getAttribute("href").slice(1));
  if (!to) return;
  e.preventDefault();
  section = to.id;
  to.scrollIntoView();
  remember();
});

readArtifacts();
const restore = recall();
markSources();
drawSequence();
drawShort();
drawHead();
drawSelectors();
drawPath();
drawViews();
drawWhy();
drawTime();
drawReference();
restore();
// Laying out a large graph takes a while: after the rest is there to be read.
requestAnimationFrame(() => setTimeout(() => { drawModel(); document.body.dataset.ready = "yes"; }, 0));
