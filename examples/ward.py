"""Writes `raw.csv`, the raw records of an invented ward: one row per record, with gaps, doses and timestamps.

The guide to raw records (`docs/guides/tables.md`) prepares them. Run it with `python examples/ward.py`.
"""

import csv
import datetime
import os
import random

PATIENTS = 100 if os.environ.get("PRIVRL_TOY") else 300


def main() -> None:
    rng = random.Random(0)
    rows = []
    for patient in range(PATIENTS):
        admitted = datetime.datetime(2026, 5, 1) + datetime.timedelta(hours=rng.randrange(1000))
        hours = rng.randrange(8, 60)
        for hour in range(hours):
            time = admitted + datetime.timedelta(hours=hour, minutes=rng.randrange(60))
            lactate = f"{rng.lognormvariate(0.5, 0.5):.1f}" if rng.random() < 0.2 else ""
            dose = f"{rng.random() / 10:.3f}" if rng.random() < 0.3 else ""
            survived = int(rng.random() < 0.8) if hour == hours - 1 else ""
            ward = rng.choice(["icu", "step-down"])
            rows.append((patient, time, round(rng.gauss(75, 12)), lactate, ward, dose, survived))
    rng.shuffle(rows)
    with open("raw.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("patient_id", "charttime", "map", "lactate", "ward", "norepinephrine", "survived"))
        table.writerows(rows)
    print(f"Wrote raw.csv ({PATIENTS} patients).")


if __name__ == "__main__":
    main()
