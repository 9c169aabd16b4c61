-- The passwords of the services' logins, from the environment (psql 14 or later). `ductor migrate` makes the logins without any.
\getenv definition DEFINITION_PASSWORD
alter role ductor_definition password :'definition';
\getenv trigger TRIGGER_PASSWORD
alter role ductor_trigger password :'trigger';
\getenv run_control RUN_CONTROL_PASSWORD
alter role ductor_run_control password :'run_control';
\getenv signals SIGNALS_PASSWORD
alter role ductor_signals password :'signals';
\getenv reads READS_PASSWORD
alter role ductor_reads password :'reads';
\getenv admin ADMIN_PASSWORD
alter role ductor_admin password :'admin';
\getenv coordinator COORDINATOR_PASSWORD
alter role ductor_coordinator password :'coordinator';
\getenv dispatch DISPATCH_PASSWORD
alter role ductor_dispatch password :'dispatch';
