/**
 * The question as a command, as curl and as Python, to copy.
 * Called by main.js; calls nothing. The text is what this page itself sent, so that its answer is the same.
 */

const FILE = "question.json";

const COMMANDS = { predictions: "predict", comparisons: "compare", explanations: "explain", checks: "check", memory_plans: "fit-memory", differences: "diff" };
const FLAGS = { gpus: "gpu", gpu: "gpu", batch_sizes: "batch-size", precisions: "precision", memory_formats: "memory-format", budget_usd: "budget", deadline_h: "deadline" };

/**
 * @param {string} name of the answers, such as "predictions"
 * @param {object} question
 * @param {"command"|"curl"|"python"} how
 * @param {string} file of the CNN, if it is one of the user's
 */
export function requestText(name, question, how, file) {
  const url = new URL(`v1/${name}`, document.baseURI).href;
  return { command: () => command(COMMANDS[name], question, file), curl: () => curl(url, question), python: () => python(url, question) }[how]();
}

/** The command that gives the same answer. */
function command(verb, { cnn = null, layer_table = null, after = null, ...options }, file) {
  const cnns = [layer_table ? file : cnn, ...(after ? [after.cnn] : [])].map(shellWord);
  const flags = Object.entries(options).flatMap(([name, value]) => {
    const flag = `--${FLAGS[name] ?? name.replaceAll("_", "-")}`;
    if (value === true) return [flag];
    return name === "batch_sizes" ? [`${flag} ${value.join(",")}`] : [value].flat().map((each) => `${flag} ${shellWord(String(each))}`);
  });
  return ["epochcast", verb, ...cnns, ...flags].join(" ");
}

const shellWord = (text) => (/^[\w.,:@/+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

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
