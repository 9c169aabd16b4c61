"""`python -m ductord.gateway.openapi IMAGE VERSION` prints the document. For proto/gen.sh."""

import json
import sys
from pathlib import Path

from ductord.gateway.openapi.document import document

image, version = sys.argv[1:]
json.dump(document(Path(image).read_bytes(), version), sys.stdout, indent=1, ensure_ascii=False)
sys.stdout.write("\n")
