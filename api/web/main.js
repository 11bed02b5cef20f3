/**
 * The page at /: form in, answers out. Loaded by index.html; calls every other module, none of which calls it.
 * The question stands in the link after #, so that it is never sent anywhere but to the service, when asked.
 */
import { drawAsked } from "./asked.js";
import { onThemeChange } from "./charts.js";
import { offerColumns, predictionColumns, providerOf } from "./columns.js";
import { drawCostChart } from "./cost_chart.js";
import { drawDecision } from "./decision.js";
import { byId, copy, download, fill, make } from "./dom.js";
import { clearErrors, showError, showProblem } from "./errors.js";
import { Explanation } from "./explanation.js";
import { Form } from "./form.js";
import { count, dollars, duration, learnGpus, shortGpu } from "./format.js";
import { currentLanguage, preferredLanguage, setLanguage, t } from "./i18n.js";
import { readCnn } from "./own_cnn.js";
import { doubts, explanationQuestion, fromFragment, hoursOf, questions, toFragment, trainingQuestion, usdOf } from "./question.js";
import { needsFile, requestText } from "./request.js";
import { Refusal, ask, get } from "./service.js";
import { Table } from "./table.js";
import { TimeChart } from "./time_chart.js";

const form = new Form();
const timeChart = new TimeChart();
const rowsTable = new Table(byId("rows-table"), say);
const offersTable = new Table(byId("offers-table"), say);
const explanation = new Explanation(explain, say);
/** Predictions are shown at each GPU's best batch size, the others folded away. */
const GROUPED = {
  of: (row) => row.gpu,
  best: (row) => row.best_batch,
  label: (row, n) => t("unfold", { n: count(n), gpu: shortGpu(row.gpu) }),
};
const shown = { state: null, upload: null, own: {}, answers: {} };
const LIVE_MS = 300; // from the last change of the form to its answer
const lastEdited = { now: null, before: null };
const lastAsked = { link: null, upload: null };
let running = null;
let advice = null; // once its panel was opened

start();

async function start() {
  await setLanguage(fromFragment(location.hash).language ?? preferredLanguage());
  listen();
  try {
    const known = await lists();
    learnGpus(known.gpus);
    form.load(known);
  } catch (error) {
    say(t("not_started", { why: error.message }));
    return;
  }
  drawLanguage();
  form.show(fromFragment(location.hash).state); // the lists say which fields a link may have
  await answer({ keepFocus: true, keepLink: true });
}

async function lists() {
  const [cnns, gpus, data_sets, models, options] = await Promise.all(
    ["cnns", "gpus", "data_sets", "models", "options"].map((name) => get(`v1/${name}`)),
  );
  return { cnns, gpus, data_sets, options, hosts: models.flatMap((model) => model.hosts) };
}

function listen() {
  for (const part of document.querySelectorAll("details.card[open]")) {
    part.open = !isNarrow(); // there, the first screen holds the answer
    part.addEventListener("toggle", () => part.open && drawCharts()); // what is folded has no width
  }
  byId("advice").addEventListener("toggle", offerAdvice);
  form.element.addEventListener("submit", (event) => {
    event.preventDefault();
    answer({});
  });
  const soon = afterwards(() => isUnasked() && answer({ live: true }), LIVE_MS);
  form.element.addEventListener("input", (event) => {
    lastEdited.now = event.target.id || event.target.value;
    drawStale();
    soon();
  });
  form.element.addEventListener("own", askFile);
  byId("line-file").addEventListener("click", askFile);
  for (const id of ["offers-find", "offers-provider", "measured-only"]) byId(id).addEventListener("input", drawOffers);
  addEventListener("hashchange", restore);
  addEventListener("resize", afterwards(drawCharts, 150));
  onThemeChange(drawCharts);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part of the link after # is the question
    byId("results").focus();
  });
  byId("parts").addEventListener("click", (event) => {
    event.preventDefault(); // the same
    if (event.target.hash) goToPart(byId(event.target.hash.slice(1)));
  });
  byId("language").addEventListener("click", switchLanguage);
  byId("fold").addEventListener("click", () => fold(!byId("question").classList.contains("folded")));
  byId("share").addEventListener("click", async () => say(t((await copy(link(form.read(), true))) ? "shared" : "not_copied")));
  byId("rows-csv").addEventListener("click", () => rowsTable.save("epochcast-predictions.csv"));
  byId("offers-csv").addEventListener("click", () => offersTable.save("epochcast-offers.csv"));
  byId("request_what").addEventListener("change", drawRequest);
  byId("request_how").addEventListener("change", drawRequest);
  byId("request-copy").addEventListener("click", async () => say(t((await copy(byId("request-text").textContent)) ? "copied" : "not_copied")));
  byId("request-json").addEventListener("click", () => download("question.json", "application/json", JSON.stringify(chosenQuestion())));
}

/** Show the field of the CNN's file. */
function askFile() {
  fold(false);
  form.element.dispatchEvent(new Event("input"));
  byId("file").focus();
}

/** Whether the form asks something else than what is answered, or a file that was read since. */
function isChanged() {
  return !shown.state || link(form.read()) !== link(shown.state) || (form.read().source === "file" && form.upload !== shown.upload);
}

/** Whether the form asks something else than what was asked last. */
function isUnasked() {
  return link(form.read()) !== lastAsked.link || form.upload !== lastAsked.upload;
}

/**
 * Ask the service what the form says, and show what it answers.
 * @param {{keepFocus?: boolean, keepLink?: boolean, live?: boolean}} how `live`: while somebody types, whose focus stays
 */
async function answer({ live = false, keepFocus = live, keepLink = false }) {
  await form.reading?.catch(() => null);
  const [state, upload] = [form.read(), form.upload];
  Object.assign(lastAsked, { link: link(state), upload });
  if (live && state.source === "file" && !upload) return;
  clearErrors();
  if (!keepLink && link(state) !== location.href) remember(link(state), live);
  if (state.source === "file" && !upload) return refuse([showError("file", t("file_none"), currentLanguage())]);
  const unclear = doubts(state).map(({ name, key, values }) => showError(name, t(key, values), currentLanguage()));
  if (unclear.length) return refuse(unclear, { live });
  running?.abort();
  running = new AbortController();
  busy(true);
  say(t("asking"), { seen: !shown.state });
  const { signal } = running;
  const file = state.source === "file" ? upload : null;
  const asked = questions(state, file);
  const own = await ownLayers(file, asked.predictions.image_size);
  if (signal.aborted) return;
  const results = own.refusal
    ? [own]
    : await Promise.all(Object.entries(asked).map(([name, question]) => outcome(name, { ...question, ...own }, signal)));
  if (results.some((result) => result.aborted)) return;
  busy(false);
  conclude({ state, upload: file, own, asked }, results, { keepFocus, live });
}

/** Put a question into the browser's history; what is typed on in one field is one question. */
function remember(address, live) {
  const goesOn = live && lastEdited.now === lastEdited.before;
  lastEdited.before = live ? lastEdited.now : null;
  history[goesOn ? "replaceState" : "pushState"](null, "", address);
}

/** What the questions say of a file besides what they show: its layers, which the service has read. */
async function ownLayers(upload, image_size) {
  try {
    const cnn = await readCnn(upload, image_size);
    if (cnn) form.describe(upload, cnn);
    return cnn ? { layer_table: cnn.layer_table } : {};
  } catch (error) {
    return { refusal: problemOf(error), field: "file" };
  }
}

async function outcome(name, question, signal) {
  try {
    return { name, found: await ask(`v1/${name}`, question, signal) };
  } catch (error) {
    return error.name === "AbortError" ? { aborted: true } : { name, refusal: problemOf(error) };
  }
}

function problemOf(error) {
  return error instanceof Refusal ? error.problem : { detail: t("failed") };
}

/** What the time on one GPU is made of, for the question whose answer is shown. */
async function explain(gpu) {
  shown.asked.explanations = explanationQuestion(shown.state, shown.upload, shown.answers.predictions.rows.find((row) => row.gpu === gpu));
  drawRequest();
  return ask("v1/explanations", { ...shown.asked.explanations, ...shown.own }, running.signal);
}

/** Fill the panel of the user's own training, if it is open; its module is read when it is opened first. */
async function offerAdvice() {
  if (!byId("advice").open || !shown.answers.predictions) return;
  advice ??= new (await import("./advice.js")).Advice(advise, say);
  advice.offer(ownRows(), form.lists.cnns.map(({ cnn }) => cnn));
}

/** Ask about the question whose answer is shown, on one GPU at one batch size. */
async function advise(path, gpu, batch_size, more) {
  const epochs = path === "checks" ? { epochs: shown.asked.comparisons.epochs } : {};
  shown.asked[path] = { ...trainingQuestion(path, shown.state, shown.upload, gpu, batch_size), ...epochs, ...more };
  drawRequest();
  return ask(`v1/${path}`, { ...shown.asked[path], ...shown.own });
}

function conclude(question, results, { keepFocus, live }) {
  const faults = results.filter((result) => result.refusal).flatMap((result) => showProblem(result.refusal, result.field));
  if (!faults.length) {
    Object.assign(shown, question);
    if (isNarrow() && !live) fold(true);
    shown.answers = Object.fromEntries(results.map(({ name, found }) => [name, found]));
    drawAnswer();
    if (!keepFocus) goToResults();
    offerAdvice();
    explanation.offer([...new Set(shown.answers.predictions.rows.map((row) => row.gpu))]);
    say(t("answered", { rows: count(shown.answers.predictions.rows.length), offers: count(shown.answers.comparisons.rows.length) }), { seen: false });
  } else refuse(faults, { live, isQuestion: results.some(({ refusal }) => refusal?.status >= 400 && refusal.status < 500) });
}

/** Go to what is at fault; whether the question is, or the service answers none, is said apart. Who types stays there. */
function refuse(faults, { live = false, isQuestion = true } = {}) {
  drawStale();
  if (live) return say(isQuestion ? t("refused") : "", { seen: false }); // the message stands below the line
  if (faults.some((fault) => byId("question-body").contains(fault))) fold(false);
  const first = faults.sort((a, b) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1))[0];
  say(isQuestion ? t("refused") : "");
  first.focus({ preventScroll: true });
  for (const part of [first.closest("[data-field]"), first, byId(`${first.id}-error`)]) part?.scrollIntoView({ block: "nearest" });
}

/** Fold away what stands behind the line of the question, or unfold it. */
function fold(is) {
  byId("question").classList.toggle("folded", is);
  byId("fold").setAttribute("aria-expanded", String(!is));
}

/** On a phone, go on to the answer. */
function goToResults() {
  if (isNarrow()) byId("results").focus();
}

/** Unfold a part of the answer, and go on from its heading. */
function goToPart(part) {
  const folds = part.tagName === "DETAILS";
  if (folds) part.open = true;
  (folds ? part.querySelector("summary") : part).focus({ preventScroll: true });
  part.scrollIntoView();
}

function isNarrow() {
  return matchMedia("(max-width: 900px)").matches;
}

/** Ask the question that was answered with other fields. @param {Object<string, string>} patch */
function apply(patch) {
  form.show({ ...shown.state, ...patch });
  answer({});
}

/** Predictions of the training asked about, without those of trainings beside it. */
function ownRows() {
  const { rows } = shown.answers.predictions;
  return shown.state.beside ? rows.filter((row) => ["cnn", "image_size", "batch_size"].every((name) => row[name] === rows[0][name])) : rows;
}

function drawAnswer() {
  if (!shown.answers.predictions) return;
  const { predictions, comparisons } = shown.answers;
  byId("results").classList.remove("empty");
  timeChart.load(ownRows());
  const columns = predictionColumns(Boolean(shown.state.beside));
  rowsTable.draw({ caption: t("rows_title"), columns, rows: predictions.rows, group: shown.state.beside ? undefined : GROUPED });
  fill(byId("offers-provider"), [["", t("all_providers")], ...providers(comparisons.rows).map((name) => [name, name])]);
  drawStale();
  drawDecision(comparisons, limits(), predictions.left_out, apply);
  drawOffers();
  document.title = title();
  drawRequest();
  drawCovers();
}

/** The table and the chart of the offers that the filters leave. */
function drawOffers() {
  if (!shown.answers.comparisons) return;
  const { rows } = shown.answers.comparisons;
  offersTable.draw({ caption: t("offers_title"), columns: offerColumns(rows), rows: filtered(rows) });
  drawCost();
}

function filtered(rows) {
  const words = byId("offers-find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [provider, measured] = [byId("offers-provider").value, byId("measured-only").checked];
  return rows.filter((row) => {
    const text = `${row.gpu} ${row.offer} ${row.region ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word)) && (!provider || providerOf(row) === provider) && !(measured && row.extrapolates.length);
  });
}

const providers = (rows) => [...new Set(rows.filter((row) => row.usd_per_hour !== null).map(providerOf))].sort();

/** What was asked and what the answer is, for tabs, bookmarks and whoever gets the link. */
function title() {
  const { best } = shown.answers.comparisons.verdict;
  const { state } = shown;
  const took = best && [shortGpu(best.gpu), duration(3600 * best.total_time_h), best.total_cost_usd === null ? "" : dollars(best.total_cost_usd)];
  const values = { cnn: state.source === "zoo" ? state.cnn : state.file, data: state.data_set || t("data_set_own"), answer: took ? took.filter(Boolean).join(", ") : "–" };
  return t("page_title", values);
}

/** Say what was asked, and whether the form has changed since. */
function drawStale() {
  if (!shown.state) return;
  drawAsked(shown.state, shown.answers.predictions.rows[0].image_size, isChanged());
}

function drawCharts() {
  timeChart.draw();
  drawCost();
  explanation.drawChart();
}

function drawCost() {
  if (!shown.answers.comparisons) return;
  const { rows, verdict } = shown.answers.comparisons;
  drawCostChart(filtered(rows), limits(), verdict.best);
}

function limits() {
  const { budget_usd, deadline_h } = shown.asked.comparisons;
  return { budget: usdOf(budget_usd), deadline: hoursOf(deadline_h) };
}

/** What the numbers hold, in three sentences, and in full as the service says it of each table. */
function drawCovers() {
  const { predictions, comparisons } = shown.answers;
  const [row] = comparisons.rows;
  const loaded = t(row.loading_time_ms === null ? "covers_unloaded" : "covers_loaded");
  const validated = t(shown.asked.comparisons.validation_samples ? "covers_validated" : "covers_unvalidated");
  const sentences = [t("covers_work", { loaded, validated }), t("covers_interval"), t("covers_price", { date: dates(comparisons.rows) }), ...(shown.state.beside ? [t("covers_by_itself")] : [])];
  byId("covers").replaceChildren(make("p", { text: sentences.join(" ") }));
  const full = [["rows_title", predictions], ["offers_title", comparisons]].flatMap(([title, { covers }]) => [
    make("h3", { text: t(title), lang: currentLanguage() }), ...[covers].flat().map((text) => make("p", { text })),
  ]);
  byId("covers-full").replaceChildren(...full);
}

/** Days of the prices of all rows, from the oldest. */
function dates(rows) {
  const days = rows.map((row) => row.priced_on).filter(Boolean).sort();
  return days.length ? [...new Set([days[0], days.at(-1)])].join("–") : "–";
}

function chosenQuestion() {
  return { ...shown.asked[byId("request_what").value], ...shown.own };
}

function drawRequest() {
  if (!shown.asked) return;
  const names = Object.keys(shown.asked);
  fill(byId("request_what"), names.map((name) => [name, t(`request_${name}`)]), byId("request_what").value || names[0]);
  const question = chosenQuestion();
  byId("request-text").textContent = requestText(byId("request_what").value, question, byId("request_how").value, shown.state.file);
  byId("request-json").hidden = !needsFile(question) || byId("request_how").value === "command";
}

async function restore() {
  const { state, language } = fromFragment(location.hash);
  lastEdited.before = null;
  if (language && language !== currentLanguage()) {
    await setLanguage(language);
    drawLanguage();
  }
  form.show(state);
  answer({ keepFocus: true, keepLink: true });
}

async function switchLanguage() {
  await setLanguage(currentLanguage() === "en" ? "ja" : "en");
  history.replaceState(null, "", link(form.read()));
  drawLanguage();
  drawAnswer();
  explanation.draw();
  if (byId("advice").open) advice?.draw();
  say("");
}

function drawLanguage() {
  const button = byId("language");
  button.textContent = t("other_language");
  button.lang = currentLanguage() === "en" ? "ja" : "en";
  form.draw();
}

function link(state, whole = false) {
  const fragment = toFragment(state, currentLanguage(), whole);
  return new URL(fragment ? `#${fragment}` : location.pathname + location.search, location.href).href;
}

function busy(is) {
  byId("ask").setAttribute("aria-disabled", String(is));
  byId("results").setAttribute("aria-busy", String(is));
  byId("results").classList.toggle("busy", is);
}

/** Tell the live region. @param {string} message @param {{seen?: boolean}} how whether those who see need it, too */
function say(message, { seen = true } = {}) {
  byId("status").classList.toggle("unseen", !seen);
  byId("status").textContent = message;
}

/** Call once, a while after the last of many calls. */
function afterwards(call, wait_ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, wait_ms);
  };
}
