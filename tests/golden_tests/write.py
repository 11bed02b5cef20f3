"""Writes the golden tables anew: `python tests/golden_tests/write.py`."""

import tempfile
from pathlib import Path

from cases import QUESTIONS
from faces import answers_of_bulk, answers_of_evaluation, answers_of_fit, answers_of_python
from golden_tables import TABLES, explained_rows, other_modes, write


def main() -> None:
    records_by_table: dict[str, list[dict[str, object]]] = {name: [] for name in TABLES}
    for question in QUESTIONS:
        records = answers_of_python(question)
        if question.verb == "explain":
            records_by_table["explain"] += explained_rows(question.name, records)
            records_by_table["other_modes"] += other_modes(question.name, records)
        else:
            records_by_table[question.verb] += [record | {"question": question.name} for record in records]
    with tempfile.TemporaryDirectory() as folder:
        records_by_table["bulk"] = answers_of_bulk(Path(folder))
        records_by_table["fit"] = answers_of_fit(Path(folder))
        records_by_table["evaluate"] = answers_of_evaluation(Path(folder))
    for name, table in TABLES.items():
        write(table, table.rows(records_by_table[name]))
        print(f"{table.path.name}: {len(records_by_table[name]):,} rows, {table.path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
