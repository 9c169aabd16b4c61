"""The OpenAPI 3.1 document of the REST side: made from the descriptors and the comments of proto/ by `proto/gen.sh`, served as it was made.

| module     | what is in it                                                                |
|------------|------------------------------------------------------------------------------|
| `comments` | what proto/ says in words of its messages, fields, values and RPCs           |
| `schemas`  | JSON Schema of messages and enums as the REST door reads and writes them     |
| `failures` | the errors: their schema, and which an operation may answer with             |
| `paths`    | the operations                                                               |
| `document` | all of it together; `python -m ductord.gateway.openapi IMAGE` prints it      |
| `serving`  | `GET /openapi.json`                                                          |

Only `serving` is at work in a gateway. The others follow `reading`, `writing` and `routing` and must never say what those do not do: a test holds the document
against what a running stack answers.
"""
