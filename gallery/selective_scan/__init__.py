"""`ssm::selective_scan`, the scan of Mamba's layers, and its backward."""
