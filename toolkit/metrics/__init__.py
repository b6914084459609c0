"""torchmetrics classes for measurements that accumulate over batches."""
