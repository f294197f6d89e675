"""What a run promises for new rows, as a document that others can check.

document     certificate.json: canonical bytes, digest, signatures
commit       a holder's commitment to its calibration rows, and what opens it
statement    from the result of a run to the statement of its certificate
recompute    the numbers of a statement again, from the counts in it
recount      the counts again, from the rows of their holders
watch        does the promise still hold on fresh rows?
verify       everything that can be checked of a certificate
"""

from fedssca.run.promise.commit import Opening, commitment, new_salt, read_opening, write_opening
from fedssca.run.promise.document import CERTIFICATE, Certificate, canonical, read_certificate
from fedssca.run.promise.statement import (
    openings_of,
    save_certificate,
    save_openings,
    statement_of,
)

__all__ = [
    "CERTIFICATE",
    "Certificate",
    "Opening",
    "canonical",
    "commitment",
    "new_salt",
    "openings_of",
    "read_certificate",
    "read_opening",
    "save_certificate",
    "save_openings",
    "statement_of",
    "write_opening",
]
