"""What a run reports: values over all rows, KKT residuals, bytes on the wire, the certificate."""
