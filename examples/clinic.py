"""Writes the records of an invented clinic: `clinic.csv`, and `practice.csv`, the clinic's published dosing protocol.

Each patient's blood pressure (level 0 to 5) is measured the day before each of six monthly visits, and a month after
the last one. The target is level 1. At each visit a doctor prescribes a dose: none, low or high. The tutorial
(`docs/tutorial.md`) learns a policy from these records. Run it with `python examples/clinic.py`.
"""

import csv
import datetime
import os
import random

PATIENTS = 500 if os.environ.get("PRIVRL_TOY") else 40_000
VISITS, TARGET = 6, 1
MONTH = datetime.timedelta(days=30)
# Probabilities of dose none, low and high at each level: too cautious when the pressure is high.
PROTOCOL = (
    (0.70, 0.20, 0.10),
    (0.55, 0.30, 0.15),
    (0.30, 0.50, 0.20),
    (0.20, 0.55, 0.25),
    (0.20, 0.50, 0.30),
    (0.15, 0.45, 0.40),
)
FALLS = (0.05, 0.40, 0.70)  # the probability that a dose lowers the pressure by one level
RISES = (0.45, 0.20, 0.05)


def next_level(level: int, dose: int, rng: random.Random) -> int:
    """The level a month later."""
    draw = rng.random()
    change = -1 if draw < FALLS[dose] else 1 if draw < FALLS[dose] + RISES[dose] else 0
    return min(max(level + change, 0), len(PROTOCOL) - 1)


def main() -> None:
    rng = random.Random(20_261_116)
    with open("clinic.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("patient_id", "date", "pressure", "dose", "at_target"))
        for patient in range(PATIENTS):
            enrolled = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(700))
            level = rng.choices(range(6), weights=(1, 2, 4, 6, 5, 2))[0]
            table.writerow((patient, enrolled, level, "", int(level == TARGET)))
            for visit in range(1, VISITS + 1):
                day = enrolled + visit * MONTH
                dose = rng.choices(range(3), weights=PROTOCOL[level])[0]
                table.writerow((patient, day - datetime.timedelta(days=1), level, "", int(level == TARGET)))
                table.writerow((patient, day, "", dose, ""))
                level = next_level(level, dose, rng)
            last = enrolled + (VISITS + 1) * MONTH - datetime.timedelta(days=1)
            table.writerow((patient, last, level, "", int(level == TARGET)))
    with open("practice.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("state", "action", "probability"))
        table.writerows((s, a, p) for s, doses in enumerate(PROTOCOL) for a, p in enumerate(doses))
    print(f"Wrote clinic.csv ({PATIENTS:,} patients) and practice.csv.")


if __name__ == "__main__":
    main()
