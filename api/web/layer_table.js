/**
 * Layer tables from CSV and JSON files, as the service takes them.
 * Called by upload.js; calls nothing. Only the form is read here: whether the layers make sense, the service says.
 */

const COUNTS = ["image_size", "batch_size", "parts", "waits", "first_wait", "last_wait", "beside", "update_waits"];
const DECIMALS = ["optimizer_states", "optimizer_passes", "optimizer_copies"];
const WORDS = ["precision", "memory_format", "optimizer", "optimizer_form", "capture", "parallel", "warnings"];
const OF_WHOLE = [...COUNTS, ...DECIMALS, ...WORDS];
const TEXT = new Set(["name", "type", "kind"]);
const COMPUTED = new Set([
  "forward_flops", "training_flops", "training_bytes", "forward_arithmetic_intensity",
]);

/** Whether a CSV file is a measurement table, of which operators have layers' columns, too. @param {string} text */
export function isMeasurements(text) {
  const header = text.replace(/^\ufeff/, "").split(/\r?\n/, 1)[0].split(",").map((column) => column.trim());
  return header.includes("iteration_time_ms") || (header.includes("gpu") && header.includes("batch_size"));
}

/**
 * @param {string} text
 * @param {string} name of the file, without its ending
 * @returns {object} a `layer_table`
 * @throws {Error} where it is no table
 */
export function fromCsv(text, name) {
  const [header, ...rows] = csvRows(text.replace(/^\ufeff/, ""));
  if (!header?.some((column) => column.trim() === "type")) throw new Error("the first line has no column type");
  const columns = header.map((column) => column.trim());
  const filled = rows.filter((row) => row.some((cell) => cell.trim()));
  return { name, layers: filled.map((row) => csvLayer(columns, row)), ...ofWhole(columns, filled) };
}

/** What a recorded step's table says of the whole CNN, in columns that are the same in every row. */
function ofWhole(columns, rows) {
  const said = {};
  for (const column of OF_WHOLE.filter((name) => columns.includes(name))) {
    const [first, ...others] = rows.map((row) => (row[columns.indexOf(column)] ?? "").trim());
    const differing = others.findIndex((cell) => cell !== first);
    if (differing >= 0) throw new Error(`row ${differing + 2} has ${column} ${JSON.stringify(others[differing])}, row 1 ${JSON.stringify(first)}`);
    if (first) said[column] = COUNTS.includes(column) ? whole(first) : DECIMALS.includes(column) ? decimal(first) : first;
  }
  const { image_size, warnings, ...step } = said;
  return {
    ...(image_size === undefined ? {} : { image_size }),
    ...(Object.keys(step).length ? { step } : {}),
    ...(warnings ? { warnings: warnings.split(" | ").map(warningOf) } : {}),
  };
}

function warningOf(text) {
  const [kind, ...about] = text.split(": ");
  return { kind, about: about.join(": ") };
}

/** As `fromCsv`, from what `epochcast cnn show --format json` or `GET /v1/cnns/{name}` give, or a list of layers. */
export function fromJson(text, name) {
  const found = JSON.parse(text);
  const layers = Array.isArray(found) ? found : (found?.layers ?? found?.rows);
  if (!Array.isArray(layers) || !layers.length) throw new Error("it has no list layers");
  const table = { name: String(found.cnn ?? found.name ?? name).slice(0, 200), layers: layers.map(jsonLayer) };
  for (const said of ["image_size", "step", "warnings"]) { // a recorded step brings its batch size and mode
    if (found[said] !== undefined && found[said] !== null) table[said] = found[said];
  }
  return table;
}

function jsonLayer(layer) {
  return Object.fromEntries(Object.entries(layer ?? {}).filter(([column]) => !COMPUTED.has(column)));
}

function csvLayer(columns, cells) {
  const layer = {};
  columns.forEach((column, i) => {
    const text = (cells[i] ?? "").trim();
    if (COMPUTED.has(column) || OF_WHOLE.includes(column)) return;
    if (column === "inputs") layer.inputs = text ? text.split(/\s+/).map(whole) : null;
    else if (TEXT.has(column)) layer[column] = text || (column === "kind" ? null : "");
    else layer[column] = text ? whole(text) : null;
  });
  return layer;
}

/** A whole number; anything else stays as it is, so that the service can name it. */
function whole(text) {
  return /^-?\d{1,15}$/.test(text) ? Number(text) : text;
}

function decimal(text) {
  return /^\d{1,6}(\.\d{1,6})?$/.test(text) ? Number(text) : text;
}

/** Rows of cells (RFC 4180). */
function csvRows(text) {
  const rows = [];
  let row = [];
  const cell = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r\n|\n|\r|$)/gy;
  for (let match = cell.exec(text); match; match = cell.exec(text)) {
    const [, content, end] = match;
    row.push(content.startsWith('"') ? content.slice(1, -1).replaceAll('""', '"') : content);
    if (end === ",") continue;
    rows.push(row);
    row = [];
    if (cell.lastIndex >= text.length) break;
  }
  return rows;
}
