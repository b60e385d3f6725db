"""The metadata of the cluster as one log in the bucket, which every gateway may extend."""
