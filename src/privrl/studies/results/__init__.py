"""What a study leaves: policies, certificates, and the folders that hold them."""
