"use strict";
// The page's code: this file and page_*.js, put together in the order of page.py's SCRIPTS. Data flows
// one way: `data` (JSON) -> indexes made once -> sections, each drawn by one function; a choice in the
// selectors draws the path again, a line that is pointed at lights lines by their keys. User's text
// goes in by textContent only.
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
  e.append(...shown(children));
  return e;
}
function shown(children) {  // a sign of punctuation stands close to the button before it
  const list = children.flat(9).filter(c => c !== null && c !== undefined && c !== "" && c !== false);
  list.forEach((c, i) => { if (i && /^[,.;:]( |$)/.test(c) && list[i - 1].tagName === "BUTTON") list[i - 1].classList.add("then"); });
  return list;
}
const put = (id, ...children) => $(id).replaceChildren(...shown(children));

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

const none = text => h("p", {class: "none"}, text);
