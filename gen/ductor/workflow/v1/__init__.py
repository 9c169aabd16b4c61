"""Generated from proto/ by proto/gen.sh; never edited."""
