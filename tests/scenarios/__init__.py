"""Stories: what a run does, told so that people can read it. The folder is the manual of the engine; README.md is the language."""
