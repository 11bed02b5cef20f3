/**
 * The question as curl and as Python, to copy.
 * Called by main.js; calls nothing. The text is what this page itself sent, so that its answer is the same.
 */

const FILE = "question.json";

/**
 * @param {string} path such as "v1/predictions"
 * @param {object} question
 * @param {"curl"|"python"} how
 */
export function requestText(path, question, how) {
  const url = new URL(path, document.baseURI).href;
  return how === "curl" ? curl(url, question) : python(url, question);
}

/** @returns {boolean} Whether the text refers to the file question.json, which the page gives. */
export function needsFile(question) {
  return "layer_table" in question;
}

function curl(url, question) {
  if (needsFile(question)) return `curl '${url}' --json @${FILE}`;
  return `curl '${url}' --json '${quoted(question)}'`;
}

function python(url, question) {
  const before = "import json\nimport urllib.request\n";
  const after = (body) => `request = urllib.request.Request(\n    ${JSON.stringify(url)},\n    ${body},\n    {"Content-Type": "application/json"},\n)\nwith urllib.request.urlopen(request) as answer:\n    print(json.dumps(json.load(answer), indent=1))`;
  if (needsFile(question)) return `${before}from pathlib import Path\n\n${after(`Path("${FILE}").read_bytes()`)}`;
  return `${before}\nquestion = ${pythonValue(question)}\n${after("json.dumps(question).encode()")}`;
}

function pretty(question) {
  return JSON.stringify(question, null, 1).replace(/\[\s+([^\][{}]*?)\s+\]/g, (_, inner) => `[${inner.replace(/\s*\n\s*/g, " ")}]`);
}

function quoted(question) {
  return pretty(question).replaceAll("'", "'\\''");
}

function pythonValue(question) {
  return pretty(question).replace(/("(?:[^"\\]|\\.)*")|\b(true|false|null)\b/g, (_, text, word) => text ?? { true: "True", false: "False", null: "None" }[word]);
}
