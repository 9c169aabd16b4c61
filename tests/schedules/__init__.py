"""Stories of schedules, played on the pure timetable and on Postgres."""
