"""What the add-ons to other engines share: settings, a scheduler's mirror, records, serving."""
