// SPDX-License-Identifier: Apache-2.0
// Refreshes parts of a page, names the squares of the heat map, sorts tables, shows them
// as cards in a narrow window, and adds the local time. Without this script the page
// shows the state at its loading.
"use strict";

const heat = document.querySelector("[data-heat]");
const readout = document.querySelector("[data-readout]");
let data = null;
let place = null; // [group, host]

// -- tables and times ---------------------------------------------------------------

// The header of each column, which may span several.
function headersOf(table) {
  return [...table.querySelectorAll("thead th")].flatMap((th) => Array(th.colSpan).fill(th));
}

// CSS shows the rows as cards, each cell with the header of its column.
function labelCells(table) {
  const labels = headersOf(table).map((th) => (th.querySelector(".hidden") ? "" : th.dataset.short || th.innerText.replace(/\s+/g, " ").trim()));
  if (!labels.length) return;
  table.querySelectorAll("tbody tr").forEach((row) => {
    [...row.cells].forEach((cell, i) => {
      const text = cell.textContent.trim();
      cell.classList.toggle("blank", (!text || text === "–") && !cell.querySelector("svg"));
      if (cell.tagName === "TD" && labels[i] && cell.colSpan === 1) cell.dataset.label = labels[i];
    });
  });
  table.dataset.cards = "";
}

const UNITS = { KiB: 1 / 1024, GiB: 1024, TiB: 1024 ** 2, TB: 1000, s: 1000, min: 6e4, h: 36e5, d: 864e5 };

// A number if a cell begins with one, in MiB, GB or milliseconds; else its text.
function valueOf(row, column) {
  const text = row.cells[column] ? row.cells[column].textContent.trim() : "";
  const number = /^[≤ ]*([+-]?[\d,]+(?:\.\d+)?)\s*%?\s*([A-Za-z]+)?$/.exec(text);
  return number ? Number(number[1].replaceAll(",", "")) * (UNITS[number[2]] || 1) : text;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b, undefined, { numeric: true });
}

function makeSortable(table) {
  const body = table.tBodies[0];
  headersOf(table).forEach((th, column) => {
    if (th.querySelector(".hidden, .sort")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.replaceChildren(...th.childNodes);
    th.append(button);
    button.addEventListener("click", () => {
      const isDown = th.getAttribute("aria-sort") === "descending" || (!th.hasAttribute("aria-sort") && !th.matches(".n"));
      table.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", isDown ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
      rows.sort(([a], [b]) => (isDown ? compare(a, b) : compare(b, a)));
      body.append(...rows.map(([, row]) => row));
    });
  });
  if (body.rows.length <= 8) return;
  const filter = document.createElement("input");
  filter.type = "search";
  filter.className = "rows";
  filter.placeholder = "Filter these rows";
  filter.setAttribute("aria-label", filter.placeholder);
  filter.addEventListener("input", () => {
    const text = filter.value.toLowerCase();
    [...body.rows].forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(text); });
  });
  table.closest(".scroll").before(filter);
}

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

// The local time beside each time, which is in UTC; with the date if that differs.
function addLocalTimes(element) {
  element.querySelectorAll("time[datetime]").forEach((time) => {
    const at = new Date(time.dateTime);
    if (!at.getTimezoneOffset() || time.querySelector(".local")) return;
    const clock = at.toLocaleTimeString("en-GB");
    const date = at.toLocaleDateString("sv-SE");
    const isSameDay = date === at.toISOString().slice(0, 10);
    const local = document.createElement("span");
    local.className = "local";
    local.textContent = ` (${isSameDay ? "" : `${date} `}${clock} local)`;
    time.append(local);
  });
}

function decorate(element) {
  element.querySelectorAll(".scroll > table").forEach(labelCells);
  addLocalTimes(element);
}

decorate(document);
document.querySelectorAll("table[data-sort]").forEach(makeSortable);
if (new Date().getTimezoneOffset()) {
  document.querySelector("[data-zone]").textContent = `; beside them is your local time, ${zone}`;
}

// -- refreshing ---------------------------------------------------------------------

const parts = [...document.querySelectorAll("[data-live]")].map((element) => ({
  id: element.id,
  from: element.dataset.from || location.href,
  every: Number(element.dataset.live) * 1000,
  due: performance.now() + Number(element.dataset.live) * 1000,
}));
const controls = document.querySelector("[data-live-controls]");
let paused = false;
// Longer than the server waits for its stores.
const ANSWER_MS = 8000;
const NO_ANSWER = "The server does not answer; trying again";

let said = "";
function say(text) {
  const status = controls && controls.querySelector("[role=status]");
  if (status && status.textContent !== text) status.textContent = text;
  said = text;
}

function keysOf(element) {
  return new Set([...element.querySelectorAll("[data-key]")].map((row) => row.dataset.key));
}

function replacePart(id, fresh) {
  const part = document.getElementById(id);
  const freshPart = fresh.getElementById(id);
  // A part that the reader is pointing at or typing in is not replaced.
  if (!part || !freshPart || part.contains(document.activeElement) || part.matches(":hover")) return;
  const shownKeys = keysOf(part);
  const areOpen = [...part.querySelectorAll("details")].map((details) => details.open);
  part.replaceChildren(...freshPart.childNodes);
  decorate(part);
  if (part === heat) readHeat();
  part.querySelectorAll("details").forEach((details, i) => { details.open = Boolean(areOpen[i]); });
  if ("announce" in part.dataset) {
    const rows = [...part.querySelectorAll("[data-key]")].filter((row) => !shownKeys.has(row.dataset.key));
    rows.forEach((row) => row.classList.add("new"));
    if (rows.length) say(rows.length === 1 ? "1 new decision" : `${rows.length} new decisions`);
  }
}

async function refresh() {
  const now = performance.now();
  const due = parts.filter((part) => part.due <= now);
  if (due.length && !paused && !document.hidden) {
    try {
      for (const from of new Set(due.map((part) => part.from))) {
        const signal = AbortSignal.timeout(ANSWER_MS);
        const answer = await fetch(from, { headers: { Accept: "text/html" }, signal });
        if (answer.status === 401) { location.reload(); return; }
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        due.filter((part) => part.from === from).forEach((part) => replacePart(part.id, fresh));
      }
      if (said === NO_ANSWER) say("");
    } catch {
      say(NO_ANSWER);
    }
    due.forEach((part) => { part.due = performance.now() + part.every; });
  }
  setTimeout(refresh, 1000);
}

if (controls && parts.length) {
  const button = controls.querySelector("button");
  controls.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    say(paused ? "Updates are paused" : "");
  });
  setTimeout(refresh, 1000);
}

// -- the heat map -------------------------------------------------------------------

function readHeat() {
  data = JSON.parse(document.getElementById("heat-data").textContent);
  heat.querySelectorAll(".heat-group").forEach((group, at) => {
    const maps = group.querySelector(".maps");
    maps.dataset.ready = "";
    maps.tabIndex = 0;
    maps.setAttribute("role", "application");
    maps.setAttribute("aria-roledescription", "heat map");
    maps.setAttribute("aria-label", `${group.getAttribute("aria-label")}: arrow keys name a host, Enter opens it`);
    maps.dataset.at = at;
  });
}

// Control characters and those that turn the direction of text.
const visible = (name) => name.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, "\ufffd").slice(0, 255);

function show(at, host) {
  const group = data.groups[at];
  place = [at, host];
  const fills = data.labels.map((label, i) => {
    const share = group.fill[i][host];
    return `${label} ${share === null ? "–" : `${share}%`}`;
  });
  const name = document.createElement("b");
  name.textContent = visible(group.hosts[host]);
  const condition = data.conditions[group.conditions[host]]; // none on the page of plans
  const rest = [visible(group.name), ...(condition ? [condition] : []), ...fills].join(" · ");
  readout.replaceChildren(name, ` · ${rest}`);
  heat.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
  const maps = heat.querySelectorAll(".maps")[at];
  maps.querySelectorAll("svg").forEach((svg) => {
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const [row, column] = [Math.floor(host / data.columns), host % data.columns];
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("x", column * data.pitch);
    cursor.setAttribute("y", row * data.pitch);
    cursor.setAttribute("width", data.side);
    cursor.setAttribute("height", data.side);
    svg.append(cursor);
  });
}

function hostAt(event) {
  const svg = event.target.closest("svg.heat");
  if (!svg) return null;
  const box = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / box.width;
  const column = Math.floor(((event.clientX - box.left) * scale) / data.pitch);
  const row = Math.floor(((event.clientY - box.top) * scale) / data.pitch);
  const at = Number(svg.closest(".maps").dataset.at);
  const host = row * data.columns + column;
  const isThere = column >= 0 && column < data.columns && host < data.groups[at].hosts.length;
  return isThere ? [at, host] : null;
}

function open([at, host]) {
  try {
    const name = data.groups[at].hosts[host];
    if (name !== "." && name !== "..") location.assign(`/hosts/${encodeURIComponent(name)}`);
  } catch { /* a name that no URL can hold */ }
}

function move(event, at) {
  const last = data.groups[at].hosts.length - 1;
  const from = place && place[0] === at ? place[1] : -1;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: data.columns, ArrowUp: -data.columns };
  if (event.key === "Enter" && from >= 0) { open([at, from]); return; }
  let to;
  if (event.key === "Home") to = 0;
  else if (event.key === "End") to = last;
  else if (event.key in steps) to = from < 0 ? 0 : from + steps[event.key];
  else return;
  event.preventDefault();
  if (to >= 0 && to <= last) show(at, to);
}

if (heat && readout) {
  readHeat();
  heat.addEventListener("pointermove", (event) => {
    const square = hostAt(event);
    if (square && String(square) !== String(place)) show(...square);
  });
  heat.addEventListener("click", (event) => {
    const square = hostAt(event);
    if (square) open(square);
  });
  heat.addEventListener("keydown", (event) => {
    const maps = event.target.closest(".maps");
    if (maps) move(event, Number(maps.dataset.at));
  });
}
