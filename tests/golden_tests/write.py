"""Writes the golden tables anew: `python tests/golden_tests/write.py`."""

import tempfile
from pathlib import Path

from cases import QUESTIONS
from faces import answers_of_bulk, answers_of_evaluation, answers_of_fit, answers_of_python
from golden_tables import TABLES, explained_rows, other_modes, write


def main() -> None:
    found: dict[str, list[dict[str, object]]] = {name: [] for name in TABLES}
    for question in QUESTIONS:
        records = answers_of_python(question)
        if question.verb == "explain":
            found["explain"] += explained_rows(question.name, records)
            found["other_modes"] += other_modes(question.name, records)
        else:
            found[question.verb] += [record | {"question": question.name} for record in records]
    with tempfile.TemporaryDirectory() as folder:
        found["bulk"] = answers_of_bulk(Path(folder))
        found["fit"] = answers_of_fit(Path(folder))
        found["evaluate"] = answers_of_evaluation(Path(folder))
    for name, table in TABLES.items():
        write(table, table.rows(found[name]))
        print(f"{table.path.name}: {len(found[name]):,} rows, {table.path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
