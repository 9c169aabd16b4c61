"""What is common to those that give birth to runs: trigger (by hand, a schedule by hand), signals (an event), the coordinator (a timetable)."""
