# expect: policy
# caught by: rejected.import
# unpoliced: compile_error.audit
# workload: st_matmul
"""Hides its source in an encoded string."""

import base64

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


exec(
    base64.b64decode(
        "CmRlZiBoaWRkZW4oYSwgYik6CiAgICBvdXQgPSBubC5uZGFycmF5KCgyNTYsIDUxMiksIGR0eXBlPW5sLmZsb2F0MzIsIGJ1ZmZlcj1ubC5zaGFyZWRfaGJtKQogICAgcCA9IG5sLmFyYW5nZSgxMjgpWzosIE5vbmVdCiAgICBjID0gbmwuYXJhbmdlKDEyOClbTm9uZSwgOl0KICAgIGYgPSBubC5hcmFuZ2UoNTEyKVtOb25lLCA6XQogICAgZm9yIHJvdyBpbiBubC5hZmZpbmVfcmFuZ2UoMik6CiAgICAgICAgcHJvZHVjdCA9IG5sLnplcm9zKChubC5wYXJfZGltKDEyOCksIDUxMiksIGR0eXBlPW5sLmZsb2F0MzIsIGJ1ZmZlcj1ubC5wc3VtKQogICAgICAgIGZvciBrIGluIG5sLmFmZmluZV9yYW5nZSgyKToKICAgICAgICAgICAgcHJvZHVjdCArPSBubC5tYXRtdWwobmwubG9hZChhWzEyOCAqIHJvdyArIHAsIDEyOCAqIGsgKyBjXSksIG5sLmxvYWQoYlsxMjggKiBrICsgcCwgZl0pKQogICAgICAgIG5sLnN0b3JlKG91dFsxMjggKiByb3cgKyBwLCBmXSwgdmFsdWU9bmwuY29weShwcm9kdWN0KSkKICAgIHJldHVybiBvdXQK"
    ).decode(),
    globals(),
)


@nki.jit
def kernel(a, b):
    return hidden(a, b)
