"""Live studies over HTTP: `privrl serve` (the extra `privrl[serve]`)."""
